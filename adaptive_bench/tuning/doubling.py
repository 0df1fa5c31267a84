"""Compares methods after N and after 2N training steps: which orders of methods reverse, and which scores move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from adaptive_bench.tables.comparison import Column, Pair, paired_difference
from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.tables.intervals import bounds_of
from adaptive_bench.task import Metric

Scores = Mapping[str, DocumentScores]  # by method, of one task at one level


@dataclass(frozen=True)
class Doubling:
    """The methods that reach a level on a task both after N steps and after 2N, compared.

    Attributes:
        steps, task: N, and the name of the task.
        told_apart: Number of pairs that the tests of a column (all pairs, Holm) tell apart, after N and after 2N.
        pairs: Number of pairs tested; 0 if the scores of single documents are not known.
        reversals: Pairs whose first is found better after N steps and whose second after 2N.
        not_converged: Methods for which the 95 % interval of score after 2N less score after N does not hold 0.
    """

    steps: int
    task: str
    told_apart: tuple[int, int]
    pairs: int
    reversals: tuple[Pair, ...]
    not_converged: tuple[str, ...]


def doubling(steps: int, task: str, before: Scores, after: Scores, metric: Metric) -> Doubling:
    """Compare methods after N and after 2N steps; a method without a common seed and document is left out."""
    # By method, its scores after N and after 2N, [S, D] each: only on seeds and documents that both have.
    shared = {
        method: scores.shared(after[method])
        for method, scores in before.items()
        if method in after
        and set(scores.seeds) & set(after[method].seeds)
        and set(scores.documents) & set(after[method].documents)
    }
    bounds = bounds_of(metric, (one.values for pair in shared.values() for one in pair))
    wanted = list(combinations(shared, 2))
    # Corrected separately after N and after 2N.
    first, second = (Column({name: one[at] for name, one in shared.items()}, bounds).family(wanted) for at in (0, 1))
    sign = -1.0 if metric.better == "lower" else 1.0
    return Doubling(
        steps,
        task,
        (sum(one.apart for one in first.values()), sum(one.apart for one in second.values())),
        sum(one.p is not None for one in first.values()),
        tuple(
            pair if sign * one.difference > 0 else pair[::-1]
            for pair, one in first.items()
            if one.apart and second[pair].apart and one.difference * second[pair].difference < 0  # of opposite signs
        ),
        # A method is compared with itself here, so seeds are paired as well as documents.
        tuple(name for name, (old, new) in shared.items() if paired_difference(new.values, old.values, bounds).apart),
    )


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
