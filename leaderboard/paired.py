"""Which methods of a column differ: paired tests with Holm's correction, and tie groups anchored at their leader."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from adaptive_bench.metric import Metric, metric_of
from adaptive_bench.tables.comparable import Conditions
from adaptive_bench.tables.comparison import Difference, anchored, differences, holm
from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.tables.intervals import CONFIDENCE, UNBOUNDED, levels_of

from .answers import Answers
from .grid import Place, grids
from .row import Row

MOST_METHODS = 100  # of one column: 4950 pairs
_AT_ONCE = 200
RANDOM = "random_skip"
Column = tuple[Place, float]  # of a grid, and a level of it
Measured = Mapping[str, Collection[tuple[str, Conditions]]]  # by run: the tasks it asked, and under which conditions
_SAME = 1e-6  # between a score and the mean of its documents


@dataclass(frozen=True)
class Comparison:
    """The methods of one column.

    Attributes:
        order: Labels from best to worst.
        groups: 1 for those that are not told apart from the best method; of the others the best leads group 2, and
            so on.
        pairs: By two labels, better one first: the difference in their favour with its uncorrected p.
        corrected: p by the same two labels, corrected for all pairs of the column; 1 where a pair cannot be tested.
    """

    order: tuple[str, ...]
    groups: Mapping[str, int]
    pairs: Mapping[tuple[str, str], Difference]
    corrected: Mapping[tuple[str, str], float]

    def apart(self, one: str, other: str) -> bool:
        """Whether two methods differ significantly at 5 %."""
        pair = (one, other) if (one, other) in self.corrected else (other, one)
        return self.corrected.get(pair, 1.0) < 1 - CONFIDENCE


Comparisons = Mapping[Column, Comparison]


def compare(methods: Mapping[str, DocumentScores], metric: Metric) -> Comparison:
    """Compare all pairs on the seeds and documents that both have; a pair without any, or with one score, counts as
    tied. Which method leads is read off the same scores, so p is corrected for every pair, not only for the leader's.

    Args:
        methods: Scores by label, of one metric whose direction is known.
    """
    sign = -1.0 if metric.better == "lower" else 1.0
    order = tuple(sorted(methods, key=lambda name: -sign * float(methods[name].values.mean())))
    places = list(combinations(order, 2))
    pairs = _differences(methods, places, metric, sign)
    p_values = [1.0 if (found := pairs.get(place)) is None or found.p is None else found.p for place in places]
    corrected = dict(zip(places, holm(p_values), strict=True))
    tied = anchored(order, lambda leader, name: corrected[leader, name] < 1 - CONFIDENCE)
    groups = {name: number for number, members in enumerate(tied, 1) for name in members}
    return Comparison(order, groups, pairs, corrected)


def _differences(
    methods: Mapping[str, DocumentScores], places: Sequence[tuple[str, str]], metric: Metric, sign: float
) -> dict[tuple[str, str], Difference]:
    """Differences in favour of the first of each pair; tables of one shape are worked on together."""
    by_shape: dict[tuple[int, ...], list[tuple[tuple[str, str], np.ndarray]]] = {}
    bounded = True
    for place in places:
        one, other = (methods[name] for name in place)
        if one.seeds != other.seeds or one.documents != other.documents:
            if not set(one.seeds) & set(other.seeds) or not set(one.documents) & set(other.documents):
                continue
            one, other = one.shared(other)
        table = sign * (one.values - other.values)
        by_shape.setdefault(table.shape, []).append((place, table))
        for scores in (one.values, other.values):
            # Some tasks give a metric in percent that is a share elsewhere (F1 of SQuAD).
            bounded &= bool(metric.low <= scores.min() and scores.max() <= metric.high)
    bounds = (metric.low, metric.high) if bounded else UNBOUNDED
    found: dict[tuple[str, str], Difference] = {}
    for (seeds, documents), tables in by_shape.items():
        levels = levels_of(seeds, documents)
        for start in range(0, len(tables), _AT_ONCE):
            some = tables[start : start + _AT_ONCE]
            parts: list[list[Any]]
            if levels == "none":
                parts = [[float(table.mean()) for _, table in some], *[[None] * len(some)] * 3]
            else:
                parts = [part.tolist() for part in differences(np.array([table for _, table in some]), bounds)]
            for (place, _), mean, low, high, p in zip(some, *parts, strict=True):
                found[place] = Difference(mean, low, high, p, seeds, documents, levels)
    return found


def add_tests(
    rows: Iterable[Row], answers: Mapping[str, Answers], measured: Measured | None = None
) -> dict[Column, Comparison]:
    """Give each row of a tested column:

    tie_group: 1 where it is not told apart from the best score of the column, see `Comparison`.
    compared_to: The label of the best.
    difference, difference_low, difference_high, difference_p: How much better the best scores, 95 % interval, and p
        corrected for all pairs of the column. `None` in the row of the best.
    over_random, ...: How much better this method scores than random skipping, alike.
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
                if all(level in by_level and _give(by_level[level], cells[name, level]) for level in at):
                    asked = asked or (digest,)
                    for level, one in by_level.items():
                        found[level][name] = one
                    break
    return found


def _give(scores: DocumentScores, row: Row) -> bool:
    """Whether these are the answers behind a row: of several runs, and of an entry, only those that give its score."""
    return row.score is not None and abs(float(scores.values.mean()) - row.score) <= _SAME


def _add(row: Row, comparison: Comparison, scores: DocumentScores) -> None:
    best, name = comparison.order[0], row.label
    row.tie_group, row.compared_to = comparison.groups[name], best
    row.tested_seeds, row.tested_documents = scores.values.shape
    if (behind := comparison.pairs.get((best, name))) is not None:
        row.difference, row.difference_low, row.difference_high = behind.difference, behind.low, behind.high
        row.difference_p = None if behind.p is None else comparison.corrected[best, name]
        row.tested_seeds, row.tested_documents = behind.seeds, behind.documents
    pair = (RANDOM, name) if (RANDOM, name) in comparison.pairs else (name, RANDOM)
    if (over := comparison.pairs.get(pair)) is not None:
        over = over if pair[0] == name else _turned(over)
        row.over_random, row.over_random_low, row.over_random_high = over.difference, over.low, over.high
        row.over_random_p = None if over.p is None else comparison.corrected[pair]


def _turned(found: Difference) -> Difference:
    low, high = (None if end is None else -end for end in (found.high, found.low))
    return Difference(-found.difference, low, high, found.p, found.seeds, found.documents, found.levels)
