"""Measures on simulated scores how often intervals hold the truth and what tests tell apart: `docs/statistics.md`.

All seeds of a method answer the same documents. A right-or-wrong answer has the logit m + seed + document +
interaction, each of them normal, with m chosen so that the overall mean is the one asked for. A score without bounds is
that sum itself. A pooled score is a ratio of sums over documents of log-normal size, whose sum rises with the logarithm
of their size.

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
from adaptive_bench.tables.document_scores import linearised
from adaptive_bench.tables.intervals import SHARE, UNBOUNDED, Bounds, Crossed, limits

PAGE = Path(__file__).parent.parent / "docs" / "statistics.md"

SEEDS = (1, 2, 3, 5, 10)
DOCUMENTS = (8, 30, 100, 500)
MEANS = (0.02, 0.1, 0.5, 0.9, 0.98)
SIZES = 0.6  # standard deviation of the logarithm of a document's size
AT_ONCE = 2_000_000  # single scores drawn together
KINDS = ("right or wrong", "without bounds", "pooled")
Found = tuple[World, int, int, float, float]  # world, seeds, documents, mean, and coverage in percent


def answers(random: np.random.Generator, world: World, mean: float, shape: tuple[int, int, int], kind: str) -> Floats:
    """Scores [N, S, D] whose expected mean is `mean`; for kinds without bounds it is 0."""
    sums = logits(random, world, shape)
    if kind == "without bounds":
        return sums
    if kind == "pooled":
        sizes = np.exp(random.normal(0, SIZES, (shape[0], 1, shape[2]))) * np.ones_like(sums)
        return linearised(sizes * (sums + np.log(sizes) - SIZES**2), sizes)
    right = 1 / (1 + np.exp(-sums - offset(mean, world.spread)))
    return (random.random(shape) < right).astype(float)


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
    """A Markdown table that shows numbers as they are given."""
    return tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True)


def by_size(found: Sequence[Found]) -> str:
    """Table of coverage by seeds and documents: smallest and largest over worlds and means."""
    rows = [
        [str(seeds), *(span(one for one in found if one[1:3] == (seeds, documents)) for documents in DOCUMENTS)]
        for seeds in SEEDS
    ]
    return table(["seeds", *(f"{documents} documents" for documents in DOCUMENTS)], rows)


def summary(kind: str, found: Sequence[Found]) -> list[str]:
    """A row of the table of kinds: how many settings have a coverage near 95 %, above, or below."""
    more = [one for one in found if one[1] > 1]
    values = np.array([one[4] for one in more])
    worst = min(more, key=lambda one: one[4])
    below = np.mean(values < 93)
    return [
        kind,
        str(len(more)),
        f"{np.mean((values >= 93) & (values <= 97)):.0%}",
        f"{np.mean(values > 97):.0%}",
        "under 1%" if 0 < below < 0.01 else f"{below:.0%}",
        f"{worst[4]:.1f} % ({worst[0].name}, {worst[1]} seeds, {worst[2]} documents, mean {worst[3]:g})",
    ]


def page(tables: int, boards: int) -> str:
    """The text of the page; everything is measured anew."""
    kinds = {kind: list(coverage(kind, tables)) for kind in KINDS}
    about = table(
        ["world", "seeds", "documents", "seed on document"],
        [[one.name, f"{one.seed:g}", f"{one.document:g}", f"{one.both:g}"] for one in WORLDS],
    )
    kinds_table = table(
        ["scores", "settings", "93 – 97 %", "above", "below", "lowest"],
        [summary(kind, found) for kind, found in kinds.items()],
    )
    parts = [TEXT.format(tables=tables, means=", ".join(f"{mean:g}" for mean in MEANS)), about]
    parts += [KINDS_TEXT, kinds_table, SIZES_TEXT, by_size(kinds["right or wrong"])]
    few = tables // 5
    both = table(
        ["means", *(f"seeds: {seeds}" for seeds in pair_coverage.SEEDS)],
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
    chosen = [[row[column] for column in (0, 1, 9)] for row in ranking.choices(boards)]
    parts += ["## Ranking: the common variance", CHOICE_TEXT.format(boards=boards)]
    parts += [table(["limit", "told apart", "error"], chosen)]
    parts += ["## Ranking: all intervals at once", AT_ONCE_TEXT.format(boards=boards)]
    parts += [table(["methods", *(f"seeds: {count}" for count in ranking.SEEDS)], ranking.at_once(boards))]
    return "\n\n".join(parts) + "\n"


TEXT = """\
<!-- Written by `python benchmarks/coverage.py`; change that file instead. -->

# Statistics

What the intervals, tests and ranks of a list mean, and how often they are right in simulations. All seeds of a method
answer the same test documents. An interval says where the score would lie with other seeds and other documents.

## An example

Made-up scores: right answers to the same 100 documents, where a seed with n right answers has the n easiest.

| method   | right, by seed   | score and 95 % interval   |
|----------|------------------|---------------------------|
| A        | 80               | 80.0 [70.9, 86.8]         |
| A        | 80, 84           | 82.0 [34.9, 97.5]         |
| A        | 80, 84, 79       | 81.0 [71.7, 87.8]         |
| B        | 90, 88, 92       | 90.0 [82.3, 94.6]         |

- With one seed, the interval allows for other documents only. It says nothing about a second training.
- Two seeds say little about all seeds, and the interval shows it. Three are much better, five are good.
- The intervals of A and B overlap, and B is still better: on the same documents it leads by 9.0 points [+2.8, +16.4],
  p = 0.009. Compare methods by their difference, not by whether their intervals overlap.

## Intervals

The score of seed $s$ on document $d$ is $y_{{sd}} = \\mu + \\alpha_s + \\beta_d + \\gamma_{{sd}}$: a mean, a seed
effect, a document effect and their interaction. Over $S$ seeds and $D$ documents, the mean has the variance

$$\\frac{{\\sigma_\\alpha^2}}{{S}} + \\frac{{\\sigma_\\beta^2}}{{D}} + \\frac{{\\sigma_\\gamma^2}}{{S D}}.$$

| part | rule |
|---|---|
| variance | unbiased two-way estimate from mean squares; at least what seeds alone or documents alone give |
| quantile | Student's t, with D - 1 degrees of freedom where seeds hardly differ, S - 1 where they clearly do |
| metric with two bounds | Wilson's interval with both of these: stays in range, has a width at 0 and 100 % |
| any other metric | t interval, clipped at a bound if there is one |
| not a mean over documents (BLEU, perplexity) | over seeds alone |
| bits per byte | a ratio of sums: each document counts with its linearised term (Cochran, 1977, chapter 6) |
| overall score | mean over tasks, from a guess (or base) = 0 to dense = 100; both ends count as free of error |

A seed that is poor on all tasks counts once in the overall score, not once for each task. In simulated boards (three
tasks of 128 documents, 3 or 5 seeds, six equal methods) 92 to 97 % of the intervals hold the true overall score, and at
most 4 % of the boards tell any two methods apart.

## Tests and ranks

| part | rule |
|---|---|
| pairing | by document; by seed too where a method is compared with itself (shuffled decisions, more steps) |
| interval of a difference | MOVER (Newcombe, 1998; Zou and Donner, 2008), from the two Wilson intervals |
| degrees of freedom | Welch and Satterthwaite |
| few documents | on bounded metrics two are added, on which each side leads once by a half (Agresti and Min, 2005) |
| p | 1 minus the largest confidence whose interval excludes 0 |
| variance between seeds (tests only) | of three or more methods, each shrunk towards their common one (Smyth, 2004) |
| many pairs | Holm; each interval is as wide as its test, so it excludes 0 exactly where the corrected p is below 5 % |
| families | all pairs of a list; the differences to the best static control are a family of their own |
| ranks | from just behind all methods that are certainly better to just ahead of all that are certainly worse |

With 95 % confidence, all rank intervals of a list contain the true ranks, unless seeds of some methods spread far more
than those of others ([how often they err](#ranking-equal-methods-told-apart)). Every row that was measured within a
point of the level takes part, controls included.

![Left, scores of six methods with their intervals, best first. Right, the ranks that are left open to each:
methods that no test tells apart share a range of ranks.](figures/ranks.svg)

*Methods that no test tells apart share ranks ([record](records/nano_steps.json)).*

## Coverage: scores

How often a nominal 95 % interval holds the true score, in {tables} simulated tables per setting. Settings combine five
means ({means}; without bounds 0) with these standard deviations, in logits:"""

KINDS_TEXT = """\
Of all settings with two or more seeds, the share whose coverage is 93 – 97 %, above, or below:"""

SIZES_TEXT = """\
Pooled scores are bits per byte over documents of log-normal size (standard deviation 0.6), longer ones being harder;
with few documents the ratio itself is slightly biased.

Coverage of right-or-wrong scores, smallest and largest over worlds and means. With few documents, intervals err on the
wide side. With one seed, the truth is that seed's own mean over all documents."""

PAIRED_TEXT = """\
Two methods with these true means, each with seeds of its own; {tables} tables per setting. Cells: smallest and largest
coverage over 30, 100 and 500 documents and spreads between seeds of 0, 0.2 and 0.6 (logits)."""

COLLAPSING_TEXT = """\
Here a share of the seeds fails altogether: it scores 5 %, the others 95 %, on 100 documents ({tables} tables per
setting; the difference is from a method at 95 % that never fails). No interval allows for a failure that has not
happened yet. Where seeds lie this far apart, look at each, and train more."""

ERRORS_TEXT = """\
Family-wise error: how often at least one pair of equal methods is told apart, in percent of {boards} boards with 13
methods, 100 documents and 2, 3 or 5 seeds. The aim is at most 5, and at most 10 where spreads between seeds differ
twelvefold. It is narrowly missed where spreads differ fourfold, and by far where seeds collapse. Spreads are 0.4 unless
the row says otherwise. The board's case has the spreads of an earlier nano board and groups of equal methods at
98, 93, 65, 13 and 3 %. "Before" is an earlier procedure: seeds paired, Student's t with S - 1 degrees of freedom."""

POWER_TEXT = """\
Power: how many pairs are told apart, in percent, on {boards} boards whose truth is an earlier nano board at 15 %."""

CONTROL_TEXT = """\
Comparisons with one control, whose true score is 95.6 %, corrected among all pairs and as a family of their own:"""

CHOICE_TEXT = """\
Three seeds of one method say little of how much its seeds differ. So a test shrinks each method's variance towards the
one common to all methods, which weighs one and a half degrees of freedom for each of the method's own, at
most four. For each limit, in percent (3 seeds, {boards} boards): pairs of the board told apart, and boards with an
error where one of equal methods has twelve times the spread."""

AT_ONCE_TEXT = """\
How often all 78 intervals of a board hold their true differences at once, in percent of {boards} boards. Holm's
correction guarantees this only for differences of 0."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1500, help="simulated tables for each setting")
    parser.add_argument("--boards", type=int, default=400, help="simulated boards for each ranking")
    parser.add_argument("--out", type=Path, default=PAGE)
    chosen = parser.parse_args()
    atomic.write_text(chosen.out, page(chosen.tables, chosen.boards))
