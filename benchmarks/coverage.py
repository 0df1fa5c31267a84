"""How often intervals hold the truth on simulated scores, and how often equal methods are ranked: `docs/statistics.md`.

Every method's seeds answer the same documents. A right-or-wrong
answer has the logit m + seed + document + interaction, each normal, with m such that the mean over all of them is the
mean asked for; an interpolated score is 0.4 of one such answer and 0.6 of another of the same seed and document; a
score without bounds is the sum itself. A pooled score is a ratio of sums over documents whose sizes are log-normal and
whose sum rises with the logarithm of their size.

    python benchmarks/coverage.py    # about three minutes on one core
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from adaptive_bench.leaderboard.paired import compare
from adaptive_bench.metric import metric_of
from adaptive_bench.store import atomic
from adaptive_bench.tables.comparison import differences
from adaptive_bench.tables.crossed import Crossed
from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.tables.document_values import linearised
from adaptive_bench.tables.intervals import SHARE, UNBOUNDED, Bounds, limits

PAGE = Path(__file__).parent.parent / "docs" / "statistics.md"

SEEDS = (1, 2, 3, 5, 10)
DOCUMENTS = (8, 30, 100, 500)
MEANS = (0.02, 0.1, 0.5, 0.9, 0.98)
SIZES = 0.6  # standard deviation of the logarithm of a document's size
AT_ONCE = 2_000_000  # single scores
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
KINDS = ("right or wrong", "interpolated", "without bounds", "pooled")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """Standard deviations between seeds, between documents, and of seeds on a document, in logits."""

    name: str
    seed: float
    document: float
    both: float

    @property
    def spread(self) -> float:
        """Standard deviation of a logit."""
        return float(np.sqrt(self.seed**2 + self.document**2 + self.both**2))

    def of(self, seeds: int) -> World:
        """One seed answers for itself: its interval is about the same trained model on other documents."""
        return self if seeds > 1 else replace(self, seed=0.0)


Found = tuple[World, int, int, float, float]  # seeds, documents, mean, and how many intervals hold it, in percent

WORLDS = (
    World("alike", 0.0, 1.5, 0.0),
    World("usual", 0.2, 1.5, 0.3),
    World("seeds", 0.6, 1.5, 0.3),
    World("hard", 0.2, 3.0, 0.5),
    World("noise", 0.1, 0.5, 1.0),
)


def offset(mean: float, spread: float) -> float:
    """The logit whose share right is `mean` when a normal of this standard deviation is added."""
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        share = WEIGHTS @ (1 / (1 + np.exp(-middle - spread * NODES))) / WEIGHTS.sum()
        low, high = (middle, high) if share < mean else (low, middle)
    return low


def logits(
    random: np.random.Generator, world: World, shape: tuple[int, int, int], shared: Floats | float = 0.0
) -> Floats:
    """Sums of the three parts [N, S, D]; documents' difficulty is `shared` where it is given."""
    tables, seeds, documents = shape
    easy = random.normal(0, world.document, (tables, 1, documents)) if np.isscalar(shared) else shared
    return easy + random.normal(0, world.seed, (tables, seeds, 1)) + random.normal(0, world.both, shape)


def answers(random: np.random.Generator, world: World, mean: float, shape: tuple[int, int, int], kind: str) -> Floats:
    """Scores [N, S, D] whose mean over all seeds and documents is `mean`; of kinds without bounds it is 0."""
    sums = logits(random, world, shape)
    if kind == "without bounds":
        return sums
    if kind == "pooled":
        sizes = np.exp(random.normal(0, SIZES, (shape[0], 1, shape[2]))) * np.ones_like(sums)
        return linearised(sizes * (sums + np.log(sizes) - SIZES**2), sizes)
    right = 1 / (1 + np.exp(-sums - offset(mean, world.spread)))
    if kind == "right or wrong":
        return (random.random(shape) < right).astype(float)
    return 0.4 * (random.random(shape) < right) + 0.6 * (random.random(shape) < right)


def coverage(kind: str, tables: int) -> Iterator[Found]:
    """Coverage in every world, for every number of seeds and documents and every mean."""
    bounds: Bounds = UNBOUNDED if kind in ("without bounds", "pooled") else SHARE
    for number, (seeds, documents) in enumerate(product(SEEDS, DOCUMENTS)):
        random = np.random.default_rng([number, len(kind)])
        for world, mean in product(WORLDS, (0.0,) if bounds == UNBOUNDED else MEANS):
            held = []
            for _ in range(-(-tables * seeds * documents // AT_ONCE)):
                some = min(tables, AT_ONCE // (seeds * documents))
                crossed = Crossed.of(answers(random, world.of(seeds), mean, (some, seeds, documents), kind))
                low, high = limits(crossed, seeds, documents, bounds)
                held.append(np.mean((low <= mean + 1e-12) & (mean - 1e-12 <= high)))
            yield world, seeds, documents, mean, 100 * float(np.mean(held))


def paired(tables: int) -> Iterator[Found]:
    """The same for the difference of two methods that are equally good: how many intervals hold 0."""
    for seeds, documents, (number, world), mean in product(SEEDS, DOCUMENTS, enumerate(WORLDS), MEANS[:3]):
        random = np.random.default_rng([number, seeds, documents])
        shape = (min(tables, AT_ONCE // (seeds * documents)), seeds, documents)
        here, base = world.of(seeds), offset(mean, world.of(seeds).spread)
        easy = random.normal(0, here.document, (shape[0], 1, documents))
        one, other = (
            random.random(shape) < 1 / (1 + np.exp(-base - logits(random, here, shape, easy))) for _ in range(2)
        )
        _, low, high, _ = differences(one.astype(float) - other, SHARE)
        yield world, seeds, documents, mean, 100 * float(np.mean((low <= 0) & (high >= 0)))


def ranked(runs: int, methods: int = 6, documents: int = 100) -> Iterator[list[str]]:
    """How often equal methods are put into more than one tie group, in percent, by seeds and world."""
    for seeds in (1, 3, 5):
        random = np.random.default_rng(seeds)
        row = [str(seeds)]
        for world in WORLDS:
            groups = []
            for _ in range(runs):
                easy = random.normal(0, world.document, (1, 1, documents))
                sums = logits(random, world.of(seeds), (methods, seeds, documents), easy)
                scores = (random.random(sums.shape) < 1 / (1 + np.exp(-sums))).astype(float)
                members = tuple(range(seeds)), tuple(range(documents))
                tables = {str(name): DocumentScores(*members, one) for name, one in enumerate(scores)}
                groups.append(max(compare(tables, metric_of("acc")).groups.values()))
            row.append(f"{100 * float(np.mean(np.array(groups) > 1)):.1f}")
        yield row


def span(found: Iterable[Found]) -> str:
    """Smallest and largest coverage."""
    values = [one[4] for one in found]
    return f"{min(values):.1f} – {max(values):.1f}"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, its numbers as they are."""
    return tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True)


def by_size(found: Sequence[Found]) -> str:
    """Coverage by seeds and documents, from the smallest to the largest over worlds and means."""
    rows = [
        [str(seeds), *(span(one for one in found if one[1:3] == (seeds, documents)) for documents in DOCUMENTS)]
        for seeds in SEEDS
    ]
    return table(["seeds", *(f"{documents} documents" for documents in DOCUMENTS)], rows)


def by_world(found: Sequence[Found], fewest: int) -> str:
    """Coverage by world and mean, from the smallest to the largest over numbers of documents."""
    rows = []
    for world, mean in product(WORLDS, MEANS):
        here = [one for one in found if one[0] == world and one[2] >= fewest and one[3] == mean]
        rows.append([world.name, f"{mean:g}", *(span(one for one in here if one[1] == seeds) for seeds in SEEDS)])
    return table(["world", "mean", *(f"seeds: {seeds}" for seeds in SEEDS)], rows)


def summary(found: Sequence[Found]) -> str:
    """How much of the grid lies where it should, in one line."""
    more = [one for one in found if one[1] > 1]
    values = np.array([one[4] for one in more])
    worst = min(more, key=lambda one: one[4])
    return (
        f"With two seeds or more, {np.mean((values >= 93) & (values <= 97)):.0%} of the {len(more)} settings are "
        f"covered at 93 – 97 %, {np.mean(values > 97):.0%} more often, {np.mean(values < 93):.0%} less often; "
        f"the least is {worst[4]:.1f} % (world {worst[0].name}, {worst[1]} seeds, {worst[2]} documents, mean "
        f"{worst[3]:g})."
    )


def page(tables: int, runs: int) -> str:
    """The page, with everything measured anew."""
    kinds = {kind: list(coverage(kind, tables)) for kind in KINDS}
    both = list(paired(tables))
    about = table(
        ["world", "seeds", "documents", "seed on document"],
        [[one.name, f"{one.seed:g}", f"{one.document:g}", f"{one.both:g}"] for one in WORLDS],
    )
    parts = [TEXT.format(tables=tables, means=", ".join(f"{mean:g}" for mean in MEANS)), about]
    for kind, found in kinds.items():
        parts += [f"## Coverage: scores {kind}", summary(found), by_size(found)]
        if kind == "pooled":
            parts.insert(-2, POOLED_TEXT)
        if kind == "right or wrong":
            parts += ["By world and mean, from 30 documents on:", by_world(found, 30)]
    parts += ["## Coverage: differences of two equal methods", PAIRED_TEXT, summary(both), by_size(both)]
    ties = table(["seeds", *(one.name for one in WORLDS)], ranked(runs))
    parts += ["## Ranking of equal methods", RANKED_TEXT.format(runs=runs), ties]
    return "\n\n".join(parts) + "\n"


TEXT = """\
<!-- Written by `python benchmarks/coverage.py`; change that file instead. -->

# Statistics

Every trained seed of a method answers the same test documents. Two things vary: which seed a model was trained with,
and which documents it was asked. An interval of a score covers both.

- **Variance.** score[s, d] = mean + seed + document + interaction. The variance of the mean over S seeds and D
  documents is var_seed / S + var_document / D + var_interaction / (S D), from the mean squares of the table, without
  bias (`tables/crossed.py`).
- **Quantile.** Student's t. Its degrees of freedom are those of the documents, D - 1, where seeds hardly differ, and
  those of the seeds, S - 1, as soon as seeds make up a notable part. With two seeds that quantile is 12.7: two seeds
  say very little about all seeds, and their intervals say so. Three are much better, five are good.
- **Range.** A metric with two finite bounds has Wilson's interval with that variance and quantile. It stays inside the
  range and has a width where all answers are right or all are wrong: that of Wilson's interval over D documents. A
  metric without bounds has a t interval, cut at a bound if it has one.
- **One seed** has an interval over documents alone. It says how the same trained model would do on other documents and
  nothing of another training. A score that documents do not make up (BLEU, perplexities) has an interval over seeds
  alone.
- **Bits per byte** are a ratio of sums over all documents. A document enters with its part of the linearised ratio
  (Cochran, 1977, chapter 6): these parts have the metric as their mean and its spread as theirs, so that everything
  here holds for them too.
- **Interpolated scores.** The score at a saving is a mix of two measured neighbours; each document's score is the same
  mix.
- **Two methods** are compared by the differences on the documents and seeds that both have, so what makes a document
  hard for both drops out. p is 5 % where that interval just reaches 0; smaller p-values fall as Student's t with the
  degrees of freedom of the smaller level does, which holds far out in the tail, where corrected p-values are needed.
  For bounded metrics two documents are added that favour each side by a half (Agresti and Min, 2005), so that a few
  documents which all agree are not certain.
- **Tie groups.** p-values of all pairs are corrected by Holm's method; a method that is not significantly different
  from the best belongs to the group of the best, and so on with the others.

Below, how often the intervals hold the truth on simulated scores, {tables} tables for each setting (up to a few million
single scores): 95 is asked for. Cells show the smallest and the largest coverage over the settings they stand for. In a
setting of few documents and a mean near the ends exact coverage is impossible, as the number of right answers takes few
values; there the intervals err on the wide side. One seed is asked for its own mean over documents. Settings differ in
the mean ({means}) and in standard deviations, in logits:"""

POOLED_TEXT = """\
Bits per byte of documents whose sizes are log-normal (standard deviation 0.6) and which are the harder the longer they
are. Of few documents the ratio itself is a little biased."""

PAIRED_TEXT = """\
Two methods that are equally good on average, on the same documents, each with seeds of its own; means 0.02, 0.1, 0.5.
Where answers hardly ever differ the interval nearly always holds 0."""

RANKED_TEXT = """\
How often six equally good methods (mean 0.5, 100 documents) are put into more than one group, in percent of {runs}
boards; at most 5 is asked for."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1500, help="simulated tables for each setting")
    parser.add_argument("--boards", type=int, default=300, help="simulated boards for each ranking")
    parser.add_argument("--out", type=Path, default=PAGE)
    chosen = parser.parse_args()
    atomic.write_text(chosen.out, page(chosen.tables, chosen.boards))
