"""The per-sequence oracle: one static set of layers for each document, chosen with knowledge of the answers.

Readings of the same runs, at one mean saving (Glavas et al., arXiv 2410.20022, is the first):

* gold          chosen by the right answers, scored on the same runs: the maximum over noisy scores is biased upwards;
* agreement     chosen by whether the answer is the full model's own: it corrects nothing by luck;
* crossed       chosen so on one asking of the questions, scored on another: attainable by whoever knew the documents;
* crossed gold  chosen by the right answers on one asking, scored on another. A guess that is right by luck is right
                again when the question is asked again, so where the full model guesses this is no headroom: it is
                what crossed falls back to where answers cannot be compared;
* chance        gold, after each set's scores were shuffled among the documents: what sets that know nothing of each
                other reach by luck alone.

The floor is the best mixture of static sets, chosen on validation documents: the same sets, the same saving, and
documents not told apart. Headroom is crossed less floor, paired over documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adaptive_bench.errors import UsageError
from adaptive_bench.headroom.knapsack import Floats, choose, expected

# One answer is weighed against what its set has on the whole, as one more answer: a single one that is right or wrong
# is mostly luck where sets are alike.
_PRIOR_ANSWERS = 1.0


@dataclass(frozen=True)
class Askings:
    """K static sets that answered the same D documents in H askings, higher scores being better.

    Attributes:
        scores: [H][D, K].
        agrees: [H][D, K] whether the answer is the full model's, 0 or 1; empty where answers cannot be compared.
        priors: [K] mean scores on validation documents.
        costs: [K] 1 - net saving, of the documents on the whole.
    """

    scores: Sequence[Floats]
    agrees: Sequence[Floats]
    priors: Floats
    costs: Floats

    def __post_init__(self) -> None:
        shapes = {table.shape for table in (*self.scores, *self.agrees)}
        if len(shapes) != 1 or {len(self.priors), len(self.costs)} != {next(iter(shapes))[1]}:
            raise UsageError(
                f"Askings share documents and sets, got scores of shape {sorted(shapes)}, {len(self.priors)} priors "
                f"and {len(self.costs)} costs. Ask every set the same documents."
            )


@dataclass(frozen=True)
class AtSaving:
    """The readings at one mean saving, each [D] scores of the documents; the mean over askings.

    Attributes:
        weights: [K] of the floor's mixture.
        agreement: `None` where answers cannot be compared.
        crossed, crossed_gold: `None` where there is one asking.
    """

    weights: Floats
    floor: Floats
    gold: Floats
    agreement: Floats | None
    crossed: Floats | None
    crossed_gold: Floats | None
    chance: Floats


def floor_at(askings: Askings, saving: float) -> tuple[Floats, Floats] | None:
    """Weights [K] of the best static mixture that saves so much, and its scores [D]; `None` where none saves that."""
    weights = choose(askings.priors[None], askings.costs, 1.0 - saving)
    if weights is None:
        return None
    return weights[0], _mean([expected(weights, table) for table in askings.scores])


def at_saving(askings: Askings, saving: float, seed: int) -> AtSaving | None:
    """All readings at a mean saving of net FLOPs; `None` where no set saves so much.

    Args:
        seed: Of the shuffling behind `chance`.
    """
    floor = floor_at(askings, saving)
    if floor is None:
        return None
    budget = 1.0 - saving
    shuffled = [_shuffled(table, seed + number) for number, table in enumerate(askings.scores)]
    return AtSaving(
        weights=floor[0],
        floor=floor[1],
        gold=_chosen_by(askings.scores, askings.scores, askings.costs, budget),
        agreement=_chosen_by(askings.agrees, askings.scores, askings.costs, budget) if askings.agrees else None,
        crossed=_crossed(askings, askings.agrees or askings.scores, budget),
        crossed_gold=_crossed(askings, askings.scores, budget),
        chance=_chosen_by(shuffled, shuffled, askings.costs, budget),
    )


def _crossed(askings: Askings, choosing: Sequence[Floats], budget: float) -> Floats | None:
    """Each asking in turn chooses for the mean of the others, by a table of its own."""
    if len(askings.scores) < 2:
        return None
    found = []
    for number, table in enumerate(choosing):
        prior = askings.priors if choosing is askings.scores else table.mean(axis=0)
        guess = (table + _PRIOR_ANSWERS * prior) / (1.0 + _PRIOR_ANSWERS)
        others = [other for place, other in enumerate(askings.scores) if place != number]
        weights = choose(guess, askings.costs, budget)
        assert weights is not None, "the floor exists at this budget"
        found.append(expected(weights, _mean(others)))
    return _mean(found)


def _chosen_by(choosing: Sequence[Floats], scored: Sequence[Floats], costs: Floats, budget: float) -> Floats:
    found = []
    for by, table in zip(choosing, scored, strict=True):
        weights = choose(by, costs, budget)
        assert weights is not None, "the floor exists at this budget"
        found.append(expected(weights, table))
    return _mean(found)


def _shuffled(table: Floats, seed: int) -> Floats:
    """Each column in an order of its own."""
    return np.random.default_rng(seed).permuted(table, axis=0)


def _mean(tables: Sequence[Floats]) -> Floats:
    return np.asarray(np.mean(tables, axis=0), dtype=float)
