"""Compares methods after N and after 2N training steps: which orders of methods reverse, and which scores move.

The order of two methods reverses if the tests of a column (all pairs, Holm) find one of them better after N steps and
the other after 2N.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from adaptive_bench.metric import Metric
from adaptive_bench.tables.comparison import (
    Column,
    Difference,
    Pair,
    certainly_above,
    paired_difference,
)
from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.tables.intervals import Bounds, bounds_of

Scores = Mapping[str, DocumentScores]  # by method, of one task at one level


@dataclass(frozen=True)
class Doubling:
    """The methods that reach a level on a task both after N steps and after 2N, compared.

    Attributes:
        steps: N.
        task: Name of the task.
        told_apart: Number of pairs that the tests told apart, after N and after 2N.
        pairs: Number of pairs tested; 0 if the scores of single documents are not known.
        reversals: Pairs whose first is certainly better after N steps and whose second is certainly better after 2N.
        moved: By method, its score after 2N steps minus its score after N.
    """

    steps: int
    task: str
    told_apart: tuple[int, int]
    pairs: int
    reversals: tuple[Pair, ...]
    moved: Mapping[str, Difference]

    @property
    def not_converged(self) -> tuple[str, ...]:
        """Methods whose score moves significantly: the 95 % interval of the difference does not hold 0."""
        return tuple(method for method, found in self.moved.items() if found.apart)


def doubling(steps: int, task: str, before: Scores, after: Scores, metric: Metric) -> Doubling:
    """Compare methods after N steps and after 2N.

    Args:
        steps: N.
        before, after: Scores at the level after N steps and after 2N. A method without a common seed and document is
            left out.
        metric: The metric of the scores.
    """
    shared = {
        method: scores.shared(after[method])
        for method, scores in before.items()
        if method in after
        and set(scores.seeds) & set(after[method].seeds)
        and set(scores.documents) & set(after[method].documents)
    }
    bounds = bounds_of(metric, (one.values for pair in shared.values() for one in pair))
    (above, apart, pairs), (above_later, apart_later, _) = (
        _order({method: pair[side] for method, pair in shared.items()}, metric, bounds) for side in (0, 1)
    )
    return Doubling(
        steps,
        task,
        (apart, apart_later),
        pairs,
        tuple((one, other) for other, better in above.items() for one in better if other in above_later[one]),
        {method: paired_difference(new.values, old.values, bounds) for method, (old, new) in shared.items()},
    )


def _order(methods: Scores, metric: Metric, bounds: Bounds) -> tuple[dict[str, set[str]], int, int]:
    """Return by method all methods that are certainly better; the number of pairs told apart; the number tested."""
    sign = -1.0 if metric.better == "lower" else 1.0  # reversals are the same either way
    order = sorted(methods, key=lambda name: -sign * float(methods[name].values.mean()))
    found = Column(methods, bounds).family(list(combinations(order, 2)))
    above = certainly_above(order, lambda one, other: (one, other) in found and found[one, other].apart)
    tested = sum(one.p is not None for one in found.values())
    return above, sum(one.apart for one in found.values()), tested


def enough_steps(doublings: Iterable[Doubling]) -> int | None:
    """Return the smallest N after which no order reverses at 2N on any task; `None` if there is none.

    Without an order after N none can reverse, for example if no method has learnt anything yet. So N counts only if
    tests tell some pair apart after N, and do so on each task on which they do after 2N.
    """
    by_steps: dict[int, list[Doubling]] = {}
    for one in doublings:
        by_steps.setdefault(one.steps, []).append(one)
    lasting = [
        steps
        for steps, tasks in by_steps.items()
        if not any(one.reversals for one in tasks)
        and any(one.told_apart[0] for one in tasks)
        and all(one.told_apart[0] or not one.told_apart[1] for one in tasks)
    ]
    return min(lasting, default=None)
