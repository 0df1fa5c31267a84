"""Computes what a method that knew the answers could save: oracles that choose a static set of layers per document.

Each document gets one set, chosen with knowledge of the answers at a given mean saving.

* gold      is chosen by the right answers and scored on the same runs (Glavas et al., arXiv 2410.20022). It is biased
            upwards, as a maximum over noisy scores.
* crossed   is chosen on one asking of the questions and scored on another, so a method that knew the documents could
            attain it. It is chosen by whether the answer is the full model's own, or by the right answers if answers
            cannot be compared. Right answers alone would overstate the headroom where the full model guesses: a guess
            that is right by luck is right again when it is asked again.

The floor is the best mixture of static sets, chosen on validation documents: the same sets at the same saving, but
without telling documents apart. Headroom is crossed minus floor, paired over documents.

Choosing one set for each document under a mean cost is a multiple-choice knapsack. It is solved as its linear
relaxation, which is exact except for one document: if the budget ends within that document's step, it takes both sets
with weights, as if a coin were tossed (Sinha and Zoltners, Operations Research 27, 1979).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from adaptive_bench.store.measured import Floats

_TINY = 1e-12  # tolerance for rounding of costs and shares
# A document's score is averaged with its set's mean score, which counts as this many answers: if sets are alike, a
# single right answer is mostly luck.
_PRIOR_ANSWERS = 1.0


@dataclass(frozen=True)
class SetScores:
    """Results of K static sets on the same D documents in H askings; higher scores are better.

    Attributes:
        scores: [H][D, K].
        agrees: [H][D, K] whether the answer is the full model's, 0 or 1; empty if answers cannot be compared.
        priors: [K] mean scores on validation documents.
        costs: [K] 1 - net saving, over all documents.
    """

    scores: Sequence[Floats]
    agrees: Sequence[Floats]
    priors: Floats
    costs: Floats


@dataclass(frozen=True)
class AtSaving:
    """The readings at one mean saving: scores [D] of the documents, averaged over askings; `crossed` is `None` if there
    is only one. `weights` [K] are those of the floor's mixture.
    """

    weights: Floats
    floor: Floats
    gold: Floats
    crossed: Floats | None


def at_saving(askings: SetScores, saving: float) -> AtSaving | None:
    """All readings at a mean saving of net FLOPs; `None` if no set saves so much."""
    budget = 1.0 - saving
    # A single row [1, K]: one mixture of sets for all documents.
    floor = choose(askings.priors[None], askings.costs, budget)
    if floor is None:
        return None
    return AtSaving(
        weights=floor[0],
        floor=_mean([expected(floor, table) for table in askings.scores]),
        gold=_mean([expected(_chosen(table, askings.costs, budget), table) for table in askings.scores]),
        crossed=_crossed(askings, budget) if len(askings.scores) > 1 else None,
    )


def _crossed(askings: SetScores, budget: float) -> Floats:
    """The crossed reading: each asking in turn chooses the sets, which are scored by the mean of the other askings."""
    found = []
    for number, table in enumerate(askings.agrees or askings.scores):
        # `priors` are scores; for agreement, the set's mean on these documents stands in.
        prior = table.mean(axis=0) if askings.agrees else askings.priors
        # One answer of the document and `_PRIOR_ANSWERS` of the mean.
        guess = (table + _PRIOR_ANSWERS * prior) / (1.0 + _PRIOR_ANSWERS)
        others = [other for place, other in enumerate(askings.scores) if place != number]
        found.append(expected(_chosen(guess, askings.costs, budget), _mean(others)))
    return _mean(found)


def _chosen(scores: Floats, costs: Floats, budget: float) -> Floats:
    weights = choose(scores, costs, budget)
    assert weights is not None, "the floor exists at this budget"
    return weights


def _mean(tables: Sequence[Floats]) -> Floats:
    return np.asarray(np.mean(tables, axis=0), dtype=float)


def choose(scores: ArrayLike, costs: ArrayLike, budget: float) -> Floats | None:
    """Weights [D, K] that maximise the mean of the scores [D, K] under a mean cost of at most `budget`, for costs [K];
    `None` if even the cheapest candidate costs more.

    Rows sum to 1, and all rows but one select a single candidate. Among equal scores the cheaper candidate is taken.
    """
    table, prices = np.asarray(scores, dtype=float), np.asarray(costs, dtype=float)
    if budget < prices.min() - _TINY:
        return None
    steps, weights = [], np.zeros_like(table)
    for document, row in enumerate(table):
        path = _hull(row, prices)
        weights[document, path[0]] = 1.0  # the cheapest set, from which steps up the hull are bought
        for before, after in pairwise(path):
            cost = prices[after] - prices[before]
            steps.append(((row[after] - row[before]) / cost, document, before, after, cost))
    # What is left for steps after everybody's cheapest set; the budget is a mean, hence times D.
    left = len(table) * budget - float((weights @ prices).sum())
    # Slopes fall along a document's hull, so sorting keeps the steps of each document in order.
    for _, document, before, after, cost in sorted(steps, key=lambda one: -one[0]):
        share = min(1.0, left / cost)
        if share <= _TINY:  # nothing is left, or rounding made it negative
            break
        weights[document, before] -= share
        weights[document, after] += share
        left -= share * cost
    return weights


def _hull(row: Floats, prices: Floats) -> list[int]:
    """The candidates on the upper concave hull of (cost, score), from the cheapest to the best."""

    def slope(before: int, after: int) -> float:
        return float((row[after] - row[before]) / (prices[after] - prices[before]))

    path: list[int] = []
    # By price; of equal prices the best first, so that the others are passed over as no better.
    for place in sorted(range(len(row)), key=lambda place: (prices[place], -row[place])):
        if path and (row[place] <= row[path[-1]] or prices[place] <= prices[path[-1]]):
            continue
        while len(path) > 1 and slope(path[-2], path[-1]) <= slope(path[-1], place):
            path.pop()  # on or below the line from the one before it to the new one
        path.append(place)
    return path


def expected(weights: Floats, scores: ArrayLike) -> Floats:
    """The score [D] that weights [D, K] or [1, K] give each document of a table [D, K]."""
    return np.asarray((weights * np.asarray(scores, dtype=float)).sum(axis=1), dtype=float)
