"""The best choice of one candidate per sequence under a mean cost: a multiple-choice knapsack.

Solved as its linear relaxation, which is exact but for one sequence: where the budget ends within a sequence's step, it
takes both candidates with weights, as if a coin were tossed (Sinha and Zoltners, Operations Research 27, 1979). So the
value is never below the best whole choice, and above it by less than one step of one sequence.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adaptive_bench.errors import UsageError

Floats = NDArray[np.float64]
_TINY = 1e-12


class _Step(NamedTuple):
    """From one candidate of a sequence to a better one that costs more."""

    gain: float  # for each unit of cost
    sequence: int
    before: int
    after: int
    cost: float


def choose(scores: ArrayLike, costs: ArrayLike, budget: float) -> Floats | None:
    """Weights [S, K] of the candidates of each sequence: rows sum to 1, all but one are whole.

    Maximises the mean score under a mean cost of at most `budget`; of equal scores the cheaper one is taken.

    Args:
        scores: [S, K], higher is better.
        costs: [K], the same for every sequence.
        budget: Mean cost allowed.

    Returns:
        `None` where even the cheapest candidate costs more.

    Raises:
        UsageError: Tables that do not fit each other, or are empty.
    """
    table, prices = np.asarray(scores, dtype=float), np.asarray(costs, dtype=float)
    if table.ndim != 2 or not table.size or prices.shape != table.shape[1:]:
        raise UsageError(
            f"A knapsack takes scores [sequences, candidates] and costs [candidates], got {table.shape} and "
            f"{prices.shape}. Give a cost for each column."
        )
    if budget < prices.min() - _TINY:
        return None
    steps, weights = [], np.zeros_like(table)
    for sequence, row in enumerate(table):
        path = _hull(row, prices)
        weights[sequence, path[0]] = 1.0
        for before, after in pairwise(path):
            cost = prices[after] - prices[before]
            steps.append(_Step((row[after] - row[before]) / cost, sequence, before, after, cost))
    left = len(table) * budget - float((weights @ prices).sum())
    # Slopes of one sequence fall along its hull, so that sorting keeps its steps in their order.
    for step in sorted(steps, key=lambda one: -one.gain):
        share = min(1.0, left / step.cost)
        if share <= _TINY:
            break
        weights[step.sequence, step.before] -= share
        weights[step.sequence, step.after] += share
        left -= share * step.cost
    return weights


def _hull(row: Floats, prices: Floats) -> list[int]:
    """Candidates on the upper concave hull of (cost, score), from the cheapest to the best."""
    order = sorted(range(len(row)), key=lambda place: (prices[place], -row[place]))
    path: list[int] = []
    for place in order:
        if path and (row[place] <= row[path[-1]] or prices[place] <= prices[path[-1]]):
            continue
        while len(path) > 1 and _slope(row, prices, path[-2], path[-1]) <= _slope(row, prices, path[-1], place):
            path.pop()
        path.append(place)
    return path


def _slope(row: Floats, prices: Floats, before: int, after: int) -> float:
    return float((row[after] - row[before]) / (prices[after] - prices[before]))


def expected(weights: Floats, scores: ArrayLike) -> Floats:
    """The score [S] that weights [S, K] or [1, K] give each sequence of a table [S, K]."""
    return np.asarray((weights * np.asarray(scores, dtype=float)).sum(axis=1), dtype=float)
