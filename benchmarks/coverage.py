"""How often intervals hold the truth on simulated scores, and how often equal methods are ranked.

Writes `docs/statistics.md` from what it measures. Every method's seeds answer the same documents. A right-or-wrong
answer has the logit m + seed + document + interaction, each normal, with m such that the mean over all of them is the
mean asked for; an interpolated score is 0.4 of one such answer and 0.6 of another of the same seed and document; a
score without bounds is the sum itself.

    python benchmarks/coverage.py    # about two minutes on one core
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from adaptive_bench import atomic
from adaptive_bench.evaluation.comparison import differences, tie_groups
from adaptive_bench.evaluation.crossed import Crossed
from adaptive_bench.evaluation.document_scores import DocumentScores
from adaptive_bench.evaluation.intervals import SHARE, UNBOUNDED, Bounds, limits

PAGE = Path(__file__).parent.parent / "docs" / "statistics.md"
HEAD = Path(__file__).with_name("statistics.txt")

SEEDS = (1, 2, 3, 5, 10)
DOCUMENTS = (8, 30, 100, 500)
MEANS = (0.02, 0.1, 0.5, 0.9, 0.98)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """Standard deviations between seeds, between documents, and of seeds on a document, in logits."""

    name: str
    seed: float
    document: float
    both: float


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


def logits(random: np.random.Generator, world: World, shape: tuple[int, int, int], shared: Floats | float = 0.0) -> Floats:
    """Sums of the three parts [N, S, D]; documents' difficulty is `shared` where it is given."""
    tables, seeds, documents = shape
    easy = random.normal(0, world.document, (tables, 1, documents)) if np.isscalar(shared) else shared
    return easy + random.normal(0, world.seed, (tables, seeds, 1)) + random.normal(0, world.both, shape)


def answers(random: np.random.Generator, world: World, mean: float, shape: tuple[int, int, int], kind: str) -> Floats:
    """Scores [N, S, D] whose mean over all seeds and documents is `mean`; 0 for scores without bounds."""
    sums = logits(random, world, shape)
    if kind == "without bounds":
        return sums
    right = 1 / (1 + np.exp(-sums - offset(mean, float(np.hypot(np.hypot(world.seed, world.document), world.both)))))
    if kind == "right or wrong":
        return (random.random(shape) < right).astype(float)
    return 0.4 * (random.random(shape) < right) + 0.6 * (random.random(shape) < right)


def coverage(kind: str, tables: int) -> Iterator[tuple[str, int, int, float, float]]:
    """World, seeds, documents, mean and how many of the intervals hold that mean, in percent."""
    bounds: Bounds = UNBOUNDED if kind == "without bounds" else SHARE
    for number, (seeds, documents) in enumerate(product(SEEDS, DOCUMENTS)):
        random = np.random.default_rng([number, len(kind)])
        for world, mean in product(WORLDS, (0.0,) if bounds == UNBOUNDED else MEANS):
            # One seed is asked for its own mean over documents: it knows nothing of others.
            world = world if seeds > 1 else World(world.name, 0.0, world.document, world.both)
            held = 0
            for _ in range(0, tables, some := min(tables, max(1, 1_000_000 // (seeds * documents)))):
                crossed = Crossed.of(answers(random, world, mean, (some, seeds, documents), kind))
                low, high = limits(crossed, seeds, documents, bounds)
                held += int(((low <= mean + 1e-12) & (mean - 1e-12 <= high)).sum())
            yield world.name, seeds, documents, mean, 100 * held / (some * -(-tables // some))


def pairs(tables: int) -> Iterator[list[str]]:
    """For two equal methods: how often the interval of their difference holds 0, by seeds and documents."""
    for seeds in SEEDS:
        row = [str(seeds)]
        for documents in DOCUMENTS:
            found = []
            for number, (world, mean) in enumerate(product(WORLDS, (0.02, 0.1, 0.5))):
                random = np.random.default_rng([number, seeds, documents])
                some = min(tables, max(1, 2_000_000 // (seeds * documents)))
                world = world if seeds > 1 else World(world.name, 0.0, world.document, world.both)
                base = offset(mean, float(np.hypot(np.hypot(world.seed, world.document), world.both)))
                easy = random.normal(0, world.document, (some, 1, documents))
                one, other = (
                    random.random((some, seeds, documents))
                    < 1 / (1 + np.exp(-base - logits(random, world, (some, seeds, documents), easy)))
                    for _ in range(2)
                )
                low, high, _ = differences(one.astype(float) - other, SHARE)
                found.append(100 * float(np.mean((low <= 0) & (high >= 0))))
            row.append(f"{min(found):.1f} – {max(found):.1f}")
        yield row


def rankings(runs: int) -> Iterator[list[str]]:
    """How often some of six equal methods are put into different groups, in percent."""
    for seeds in (1, 3, 5):
        row = [str(seeds)]
        for world in WORLDS:
            random = np.random.default_rng(seeds)
            ranked = 0
            world = world if seeds > 1 else World(world.name, 0.0, world.document, world.both)
            for _ in range(runs):
                easy = random.normal(0, world.document, (1, 1, 100))
                right = 1 / (1 + np.exp(-logits(random, world, (6, seeds, 100), easy)))
                scores = (random.random(right.shape) < right).astype(float)
                methods = {
                    str(name): DocumentScores(tuple(range(seeds)), tuple(range(100)), table)
                    for name, table in enumerate(scores)
                }
                ranked += len(tie_groups(methods)) > 1
            row.append(f"{100 * ranked / runs:.1f}")
        yield row


def table(found: list[tuple[str, int, int, float, float]], worlds: bool = False) -> str:
    """Smallest and largest coverage by seeds and documents, over means and worlds, or by mean."""
    rows = []
    for seeds in SEEDS:
        row = [str(seeds)]
        for documents in DOCUMENTS:
            here = [one[4] for one in found if one[1:3] == (seeds, documents)]
            row.append(f"{min(here):.1f} – {max(here):.1f}")
        rows.append(row)
    return tabulate(rows, headers=["seeds", *(f"{n} documents" for n in DOCUMENTS)], tablefmt="github", disable_numparse=True)


def by_mean(found: list[tuple[str, int, int, float, float]]) -> str:
    """Coverage for each world and mean, averaged over numbers of documents from 30 on, by seeds."""
    rows = []
    for world, mean in product(WORLDS, MEANS):
        cells = [
            [one[4] for one in found if one[0] == world.name and one[1] == seeds and one[2] >= 30 and one[3] == mean]
            for seeds in SEEDS
        ]
        rows.append([world.name, f"{mean:g}", *(f"{min(cell):.1f} – {max(cell):.1f}" for cell in cells)])
    headers = ["world", "mean", *(f"{n} seed" + "s" * (n > 1) for n in SEEDS)]
    return tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True)
