"""How often intervals hold the truth on simulated scores, and what tests tell apart: writes `docs/statistics.md`.

Every method's seeds answer the same documents. A right-or-wrong
answer has the logit m + seed + document + interaction, each normal, with m such that the mean over all of them is the
mean asked for; an interpolated score is 0.4 of one such answer and 0.6 of another of the same seed and document; a
score without bounds is the sum itself. A pooled score is a ratio of sums over documents whose sizes are log-normal and
whose sum rises with the logarithm of their size.

    python benchmarks/coverage.py    # about four minutes on one core
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pair_coverage
import ranking
from simulated import WORLDS, Floats, World, logits, offset
from tabulate import tabulate

from adaptive_bench.store import atomic
from adaptive_bench.tables.crossed import Crossed
from adaptive_bench.tables.document_values import linearised
from adaptive_bench.tables.intervals import SHARE, UNBOUNDED, Bounds, limits

PAGE = Path(__file__).parent.parent / "docs" / "statistics.md"

SEEDS = (1, 2, 3, 5, 10)
DOCUMENTS = (8, 30, 100, 500)
MEANS = (0.02, 0.1, 0.5, 0.9, 0.98)
SIZES = 0.6  # standard deviation of the logarithm of a document's size
AT_ONCE = 2_000_000  # single scores
KINDS = ("right or wrong", "interpolated", "without bounds", "pooled")
Found = tuple[World, int, int, float, float]  # seeds, documents, mean, and how many intervals hold it, in percent


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
    below = np.mean(values < 93)
    return (
        f"With two or more seeds, coverage lies at 93 – 97 % in {np.mean((values >= 93) & (values <= 97)):.0%} of the "
        f"{len(more)} settings, above in {np.mean(values > 97):.0%}, below in "
        f"{'under 1%' if 0 < below < 0.005 else f'{below:.0%}'}; the lowest "
        f"is {worst[4]:.1f} % (world {worst[0].name}, {worst[1]} seeds, {worst[2]} documents, mean {worst[3]:g})."
    )


def page(tables: int, boards: int) -> str:
    """The page, with everything measured anew."""
    kinds = {kind: list(coverage(kind, tables)) for kind in KINDS}
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
            parts += ["By world and mean, for 30 or more documents:", by_world(found, 30)]
    few = tables // 5
    both = table(
        ["means", *(f"seeds: {seeds}" for seeds in pair_coverage.SEEDS), "before, 3", "before, 5"],
        pair_coverage.differences(few),
    )
    parts += ["## Coverage: differences of two methods", PAIRED_TEXT.format(tables=few), both]
    seeds = [f"{what}, {count}" for count in pair_coverage.SEEDS[2:] for what in ("score", "difference")]
    collapsing = table(["collapse", *seeds], pair_coverage.collapsing(few))
    parts += ["## Coverage: seeds that collapse", COLLAPSING_TEXT.format(tables=few), collapsing]
    compared = [f"{when}, {count}" for count in ranking.SEEDS for when in ("before", "now")]
    parts += ["## Ranking: equal methods told apart", ERRORS_TEXT.format(boards=boards)]
    parts += [table(["methods", *compared], ranking.errors(boards))]
    parts += ["## Ranking: different methods told apart", POWER_TEXT.format(boards=boards)]
    parts += [table(["true difference (pairs)", *compared], ranking.power(boards)), CONTROL_TEXT]
    families = [f"{what}, {count}" for count in ranking.SEEDS for what in ("all pairs", "control")]
    parts += [table(["", *families], ranking.against_control(boards))]
    parts += ["## Ranking: what methods may say of each other's seeds", CHOICE_TEXT.format(boards=boards)]
    names = ("power", "equal", "board's case", "twelvefold", "one less steady")
    columns = [f"{name}, {count}" for name in names for count in (3, 5)]
    parts += [table(["prior", *columns], ranking.choices(boards))]
    parts += ["## Ranking: all intervals at once", AT_ONCE_TEXT.format(boards=boards)]
    parts += [table(["methods", *(f"seeds: {count}" for count in ranking.SEEDS)], ranking.at_once(boards))]
    return "\n\n".join(parts) + "\n"


TEXT = """\
<!-- Written by `python benchmarks/coverage.py`; change that file instead. -->

# Statistics

Every trained seed of a method answers the same test documents. Two things vary: which seed a model was trained with,
and which documents it was given. The interval of a score covers both.

- **Variance.** The score of seed $s$ on document $d$ is $y_{{sd}} = \\mu + \\alpha_s + \\beta_d + \\gamma_{{sd}}$: a
  mean, a seed effect, a document effect, and their interaction. The variance of the mean over $S$ seeds and $D$
  documents is

    $$\\frac{{\\sigma_\\alpha^2}}{{S}} + \\frac{{\\sigma_\\beta^2}}{{D}} + \\frac{{\\sigma_\\gamma^2}}{{S D}},$$

    estimated without bias from the mean squares of the table, and taken to be no smaller than what seeds alone or
    documents alone give (`tables/crossed.py`).

- **Quantile.** Student's t. Its degrees of freedom are those of the documents, D - 1, where seeds hardly differ, and
  those of the seeds, S - 1, as soon as seeds account for a notable part of the variance. With two seeds, the latter
  give a quantile of 12.7: two seeds say very little about all seeds, and their intervals show it. Three are much
  better, five are good.
- **Range.** A metric with two finite bounds has Wilson's interval with that variance and quantile. It stays inside the
  range and keeps a nonzero width where all answers are right or all are wrong: that of Wilson's interval over D
  documents. Any other metric has a t interval, clipped at a bound if it has one.
- **One seed** has an interval over documents alone. It says how the same trained model would do on other documents and
  nothing about another training. A score that does not decompose over documents (BLEU, perplexities) has an interval
  over seeds alone.
- **Bits per byte** are a ratio of sums over all documents. Each document contributes its term of the linearised ratio
  (Cochran, 1977, chapter 6): the mean of these terms is the metric and their spread gives the metric's, so everything
  here applies to them too.
- **Interpolated scores.** The score at a saving interpolates between two measured neighbours; each document's score
  uses the same weights.
- **Two methods** are compared on the documents and seeds that both have, document by document, so what makes a
  document hard for both cancels out. Seeds are not paired: two methods with the same seed have hardly more in common
  than with different ones, and pairing would cost half of the degrees of freedom. The interval is MOVER's (Newcombe,
  1998; Zou and Donner, 2008): it combines the Wilson limits of the two scores, so it is asymmetric near the ends of the
  range and never ends at its own estimate, except for a difference that could not be larger. Degrees of freedom are
  Welch and Satterthwaite's. For bounded metrics, two documents that favour each side by a half are added (Agresti and
  Min, 2005), so that a few documents that all agree are not taken as certain. p is 1 minus the largest confidence whose
  interval excludes 0. For two runs of one method (`adaptive-bench diff`), which a seed moves alike, seeds are paired
  too.
- **Variance between seeds.** With three or more methods, each estimate is shrunk towards what the methods of the column
  have in common (Smyth, 2004): how much seeds move a logit. This prior counts for at most four degrees of freedom
  (three with three seeds), and for fewer where methods differ in it. The scores' own intervals do not use it.
- **Families.** The p-values of all pairs of a column are corrected by Holm's method, and each interval has the
  confidence at which Holm tested its pair: it excludes 0 exactly where the corrected p is below 5 %. The comparisons
  with the trained static control, the question of the protocol, are a family of their own.
- **Ranks.** A method's ranks run from just behind all that are certainly better to just ahead of all that are
  certainly worse, by the tests of all pairs: with 95 % confidence, every interval of the column contains the true rank.
  Overlapping intervals do not mean that methods are equal, and a method whose seeds differ a lot has more ranks left
  open than its neighbours.
- **Several tasks.** The overall score is a mean over tasks, each on a scale from the model before training (or a
  guess) at 0 to the dense model at 100. Its interval and the tests behind its ranks take seeds as they are, so that a
  seed that is poor on every task counts as one, and documents by their task's share of the mean, about their task's
  mean. The ends of the scale count as known. Of simulated boards (three tasks of 128 documents, 3 or 5 seeds that do
  or do not move the tasks together, six equal methods) 92 to 97 % of the intervals hold the true overall score, and at
  most 4 % of the boards tell any two methods apart.

![Left, scores of six methods with their intervals, best first. Right, the ranks that are left open to each:
methods that no test tells apart share a range of ranks.](figures/ranks.svg)

*Rank intervals. Ranks are shared where the tests of all pairs do not separate methods
([record](records/nano_steps.json)).*

Below is the coverage of the intervals on simulated scores, {tables} tables per setting (up to a few million single
scores); the nominal level is 95 %. Cells show the smallest and the largest coverage over the settings they stand for.
With few documents and a mean near the ends of the range, exact coverage is impossible, as the number of right answers
takes few values; there the intervals err on the conservative side. A single seed is checked against its own mean over
documents. Settings differ in the mean ({means}) and in standard deviations, in logits:"""

POOLED_TEXT = """\
Bits per byte over documents whose sizes are log-normal (standard deviation 0.6), longer ones being harder. With few
documents the ratio itself is slightly biased."""

PAIRED_TEXT = """\
Two methods with these true means on the same documents, each with seeds of its own, {tables} tables per setting.
Cells show the smallest and the largest coverage over 30, 100 and 500 documents and spreads between seeds of 0, 0.2 and
0.6 (logits). Before: seeds paired, a t interval with two added documents, as this page described it until then."""

COLLAPSING_TEXT = """\
Some methods have seeds that fail altogether: here a share of the seeds scores 5 %, the others 95 %, on 100 documents.
No interval from a few seeds can allow for a failure that has not happened: coverage can fall below half the nominal
level ({tables} tables per setting; the difference is from a method at 95 % that never fails). Nothing on a board fixes
that. Where the seeds of a method lie this far apart, look at them one by one, and train more of them."""

ERRORS_TEXT = """\
Family-wise error rate: how often at least one pair of equal methods is told apart, in percent of {boards} boards with
13 methods, 100 documents and 2, 3 or 5 seeds. The aim is at most 5, and at most 10 where spreads between seeds differ
twelvefold. Spreads are 0.4 unless stated otherwise; the board's case has the spreads of an earlier nano board, and
groups of equal methods at 98, 93, 65, 13 and 3 %. A fourfold difference of spreads misses the aim narrowly, and seeds
that collapse by far: look at seeds that lie far apart one by one, as above. Before: seeds paired, p from Student's t
with S - 1 degrees of freedom, Holm."""

POWER_TEXT = """\
Power: the share of pairs that are told apart, in percent, on {boards} boards with the scores and spreads of an
earlier nano board at 15 % as the truth, by the true difference of the pair."""

CONTROL_TEXT = """\
For the comparisons with one control at 95.6 %, corrected as part of all pairs and as a family of their own:"""

CHOICE_TEXT = """\
How many degrees of freedom the methods of a column may contribute to each other's variance between seeds (0 is Welch's
test): power on the board, and the error rates in four of the cases above, in percent of {boards} boards, with 3 and 5
seeds. The suite uses one and a half for each degree of freedom of a method's own, and at most four."""

AT_ONCE_TEXT = """\
How often all 78 intervals of a board contain their true differences simultaneously, in percent of {boards} boards.
Holm's correction guarantees this for differences of 0 only; intervals of pairs that are told apart are narrower than
those of a correction that guarantees it for all differences."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1500, help="simulated tables for each setting")
    parser.add_argument("--boards", type=int, default=400, help="simulated boards for each ranking")
    parser.add_argument("--out", type=Path, default=PAGE)
    chosen = parser.parse_args()
    atomic.write_text(chosen.out, page(chosen.tables, chosen.boards))
