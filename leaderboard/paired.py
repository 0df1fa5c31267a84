"""Which methods of a column differ: ranks from tests of all pairs, and every method against one trained control."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from adaptive_bench.metric import Metric, metric_of
from adaptive_bench.spec import method_name
from adaptive_bench.tables.comparable import Conditions
from adaptive_bench.tables.comparison import Column as Tests
from adaptive_bench.tables.comparison import Difference, rank_intervals
from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.tables.intervals import bounds_of

from .answers import Answers
from .grid import Place, grids
from .row import Row

MOST_METHODS = 100  # of one column: 4950 pairs
RANDOM = "random_skip"
_STATIC, _TRAINED = "static_depth", "trained=true"  # the same layers for every token, and trained for it
Column = tuple[Place, float]  # of a grid, and a level of it
Measured = Mapping[str, Collection[tuple[str, Conditions]]]  # by run: the tasks it asked, and under which conditions
_SAME = 1e-6  # between a score and the mean of its documents


@dataclass(frozen=True)
class Comparison:
    """The methods of one column.

    Attributes:
        order: Labels from best to worst.
        ranks: By label the best and the worst rank that the tests of all pairs leave open.
        pairs: By two labels, better one first: the difference in their favour, corrected for all pairs of the column.
        static: Label of the trained static control, the best where there are several; `None` where there is none.
        over_static: By label of all others: the difference over that control in the method's favour, corrected for
            these comparisons alone.
        scores: By label what they score on each document.
    """

    order: tuple[str, ...]
    ranks: Mapping[str, tuple[int, int]]
    pairs: Mapping[tuple[str, str], Difference]
    static: str | None = None
    over_static: Mapping[str, Difference] = field(default_factory=dict)
    scores: Mapping[str, DocumentScores] = field(default_factory=dict)

    def over(self, one: str, other: str) -> Difference | None:
        """The difference of two methods in favour of the first, `None` where they share nothing."""
        if (one, other) in self.pairs:
            return self.pairs[one, other]
        found = self.pairs.get((other, one))
        return None if found is None else found.turned()

    def apart(self, one: str, other: str) -> bool:
        """Whether two methods differ significantly at 5 %."""
        found = self.over(one, other)
        return found is not None and found.apart

    def better(self, one: str, other: str) -> bool:
        """Whether the first is significantly better than the second."""
        return self.apart(one, other) and self.order.index(one) < self.order.index(other)


Comparisons = Mapping[Column, Comparison]


def is_trained_static(name: str) -> bool:
    """Whether a label is that of the control that leaves out layers and is trained for it."""
    return method_name(name) == _STATIC and _TRAINED in name


def compare(methods: Mapping[str, DocumentScores], metric: Metric) -> Comparison:
    """Compare all pairs on the seeds and documents that both have; a pair without any, or with one score, is not told
    apart. Which method leads is read off the same scores, so p is corrected for every pair, not only for the leader's.

    Args:
        methods: Scores by label, of one metric whose direction is known.
    """
    sign = -1.0 if metric.better == "lower" else 1.0
    order = tuple(sorted(methods, key=lambda name: -sign * float(methods[name].values.mean())))
    tests = _tests(methods, metric)
    pairs = _favouring(tests, list(combinations(order, 2)), sign)
    static = next(filter(is_trained_static, order), None)
    against = [(name, static) for name in order if static is not None and name != static]
    over_static = {name: found for (name, _), found in _favouring(tests, against, sign).items()}
    ranks = rank_intervals(order, lambda one, other: (one, other) in pairs and pairs[one, other].apart)
    return Comparison(order, ranks, pairs, static, over_static, methods)


def over(reference: str, methods: Mapping[str, DocumentScores], metric: Metric) -> dict[str, Difference]:
    """By label how much better than one of them each other method scores, corrected for these comparisons alone."""
    pairs = [(name, reference) for name in methods if name != reference]
    found = _favouring(_tests(methods, metric), pairs, -1.0 if metric.better == "lower" else 1.0)
    return {name: difference for (name, _), difference in found.items()}


def _tests(methods: Mapping[str, DocumentScores], metric: Metric) -> Tests:
    return Tests(methods, bounds_of(metric, (scores.values for scores in methods.values())))


def _favouring(tests: Tests, pairs: Sequence[tuple[str, str]], sign: float) -> dict[tuple[str, str], Difference]:
    return {pair: found if sign > 0 else found.turned() for pair, found in tests.family(pairs).items()}


def add_tests(
    rows: Iterable[Row], answers: Mapping[str, Answers], measured: Measured | None = None
) -> dict[Column, Comparison]:
    """Give each row of a tested column:

    rank_low, rank_high: The best and the worst rank that the tests of all pairs leave open, see `Comparison`.
    compared_to: The label of the best.
    difference, difference_low, difference_high, difference_p: How much better the best scores, with interval and p
        corrected for all pairs. `None` in the row of the best.
    over_random, ...: How much better this method scores than random skipping, alike.
    over_static, ...: How much better than the trained static control, corrected for its comparisons alone.
    tested_seeds, tested_documents: How many the difference rests on.

    Args:
        answers: By the name of a run, as `joined` gives it to rows.
        measured: Of each run what its answers count for; without it, they count for all rows.

    Returns:
        The comparisons by column.
    """
    found: dict[Column, Comparison] = {}
    for grid in grids(rows):
        metric = metric_of(grid.metric)
        if metric.better == "unknown" or len(grid.methods) > MOST_METHODS:
            continue
        here = (grid.task, grid.conditions)
        fitting = {run: some for run, some in answers.items() if measured is None or here in measured.get(run, ())}
        for level, scores in _columns(grid.cells, grid.levels, fitting).items():
            if len(scores) < 2:
                continue
            comparison = compare(scores, metric)
            found[grid.place, level] = comparison
            for name in comparison.order:
                _add(grid.cells[name, level], comparison, scores[name])
    return found


def _columns(
    cells: Mapping[tuple[str, float], Row], levels: Sequence[float], answers: Mapping[str, Answers]
) -> dict[float, dict[str, DocumentScores]]:
    """Scores of documents by level and label; of the same documents in every column."""
    found: dict[float, dict[str, DocumentScores]] = {level: {} for level in levels}
    asked: tuple[str | None] | None = None  # digest of the documents
    for name in dict.fromkeys(method for method, _ in cells):
        by_target: dict[object, list[float]] = {}
        for level in levels:
            row = cells.get((name, level))
            if row is not None and row.score is not None:
                by_target.setdefault(row.target, []).append(level)
        for at in by_target.values():
            row = cells[name, at[0]]
            for some in answers.values():
                digest = some.digests.get(row.task)
                if asked is not None and (digest,) != asked:
                    continue
                scores = some.at_levels(row, at)
                by_level = {level: one for level, one in zip(at, scores, strict=False) if one is not None}
                if all(level in by_level and gives(by_level[level], cells[name, level]) for level in at):
                    asked = asked or (digest,)
                    for level, one in by_level.items():
                        found[level][name] = one
                    break
    return found


def gives(scores: DocumentScores, row: Row) -> bool:
    """Whether these are the answers behind a row: of several runs, and of an entry, only those that give its score."""
    return row.score is not None and abs(float(scores.values.mean()) - row.score) <= _SAME


def _add(row: Row, comparison: Comparison, scores: DocumentScores) -> None:
    best, name = comparison.order[0], row.label
    row.rank_low, row.rank_high = comparison.ranks[name]
    row.compared_to = best
    row.tested_seeds, row.tested_documents = scores.values.shape
    if (behind := comparison.pairs.get((best, name))) is not None:
        row.difference, row.difference_low, row.difference_high = behind.difference, behind.low, behind.high
        row.difference_p = behind.p
        row.tested_seeds, row.tested_documents = behind.seeds, behind.documents
    if (over := comparison.over(name, RANDOM)) is not None:
        row.over_random, row.over_random_low, row.over_random_high = over.difference, over.low, over.high
        row.over_random_p = over.p
    if (over := comparison.over_static.get(name)) is not None:
        row.over_static, row.over_static_low, row.over_static_high = over.difference, over.low, over.high
        row.over_static_p = over.p
