"""Measures how often intervals of differences, and intervals with collapsing seeds, hold the truth."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from simulated import COLLAPSED, Floats, scores

from adaptive_bench.tables.intervals import SHARE, Crossed, limits
from adaptive_bench.tables.pairs import Pairs
from adaptive_bench.tables.seed_variance import Prior, Spread

SEEDS = (1, 2, 3, 5, 10)
DOCUMENTS = (30, 100, 500)
SPREADS = (0.0, 0.2, 0.6)
MEANS = ((0.5, 0.5), (0.9, 0.9), (0.98, 0.98), (0.98, 0.9), (0.998, 0.98), (0.98, 0.5), (0.998, 0.03))
STEADY = 0.95
COLLAPSING = (0.1, 0.3, 0.5)


def differences(tables: int) -> Iterator[list[str]]:
    """For each pair of true means, the coverage of the difference: smallest and largest over `DOCUMENTS` and `SPREADS`,
    for each number of seeds.
    """
    for means in MEANS:
        found: dict[int, list[float]] = {seeds: [] for seeds in SEEDS}
        for seeds, documents, (number, spread) in product(SEEDS, DOCUMENTS, enumerate(SPREADS)):
            random = np.random.default_rng([seeds, documents, number])
            spreads = np.full(2, spread if seeds > 1 else 0.0)  # with one seed there is no spread between seeds
            drawn = [scores(random, np.array(means), spreads, seeds, documents) for _ in range(tables)]
            true = means[0] - means[1]
            found[seeds].append(_held([_difference(one) for one in drawn], true))
        yield [f"{means[0]:g}, {means[1]:g}", *(f"{min(some):.0f} – {max(some):.0f}" for some in found.values())]


def collapsing(tables: int, documents: int = 100) -> Iterator[list[str]]:
    """Coverage of the score of a method with a share of collapsing seeds, and of its difference from a steady one."""
    for share in COLLAPSING:
        shown = []
        for seeds in SEEDS[2:]:
            random = np.random.default_rng([seeds, int(100 * share)])
            true = (1 - share) * STEADY + share * COLLAPSED
            alone, both = [], []
            for _ in range(tables):
                one, other = (
                    scores(random, np.array([STEADY]), np.array([0.4]), seeds, documents, part) for part in (share, 0.0)
                )
                alone.append(tuple(end[0] for end in limits(Crossed.of(one), seeds, documents)))
                both.append(_difference(np.concatenate([one, other])))
            shown.append([f"{_held(alone, true):.0f}", f"{_held(both, true - STEADY):.0f}"])
        yield [f"{100 * share:.0f} %", *(text for pair in shown for text in pair)]


def _difference(tables: Floats) -> tuple[float, float]:
    """The interval of two methods' difference, from their scores [2, S, D]."""
    pair = Pairs.of(Spread.of(tables, SHARE), np.array([[0, 1]]), Prior())
    low, high = pair.limits(np.array([0.05]))
    return float(low[0]), float(high[0])


def _held(intervals: list[tuple[float, ...]], true: float) -> float:
    ends = np.array(intervals)
    return 100 * float(np.mean((ends[:, 0] <= true + 1e-9) & (true - 1e-9 <= ends[:, 1])))
