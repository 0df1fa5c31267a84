"""What a method's scores over the levels say together: what is kept of a score, the area, and how far 90 % reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any

from adaptive_bench.metric import Metric, metric_of
from adaptive_bench.tables.comparable import Conditions

from .row import Row

KEPT = 0.9
_series = attrgetter(
    "conditions", "method", "semantics", "run", "task", "metric", "axis", "phase", "timing", "projected_shape"
)  # what the rows of one curve share: all but the level


def add_curves(rows: Sequence[Row]) -> None:
    """Give each row:

    kept, kept_low, kept_high: The score and the ends of its interval as shares of the dense score. The dense score
        counts as known: the interval leaves out its own spread.
    kept_own: The score as a share of the method's own score where it saves nothing.
    area: Mean of `kept` from the lowest level to this one, by trapezoids between levels; `None` where a level between
        them was not reached.
    keeps_90: The largest saving up to which the method keeps 90 % of the dense score, linear between levels; `None`
        where it keeps less at its first level. Where 90 % are kept to the end, it is the last level reached.
    keeps_90_to_end: Whether that is so: more may be possible.
    dense, base: The scores of the dense model and of the model before training, at any saving.
    """
    by_series: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        by_series.setdefault(_series(row), []).append(row)
    scores, base_scores = _scores_of(rows, "dense"), _scores_of(rows, "base")
    for found in by_series.values():
        curve = sorted(found, key=lambda row: row.level)
        dense = _beside(curve[0], scores)
        metric = metric_of(curve[0].metric)
        base = _beside(curve[0], base_scores)
        own = next((row.score for row in curve if row.level == 0), None)
        kept = [_kept(metric, row.score, dense) for row in curve]
        reach, to_end = reaches([row.level for row in curve], kept)
        for place, row in enumerate(curve):
            low, high = _kept(metric, row.low, dense), _kept(metric, row.high, dense)
            if low is not None and high is not None:
                row.kept_low, row.kept_high = sorted((low, high))
            row.kept = kept[place]
            row.kept_own = _kept(metric, row.score, own)
            row.area = area([one.level for one in curve[: place + 1]], kept[: place + 1])
            row.keeps_90, row.keeps_90_to_end = reach, to_end
            row.dense, row.base = dense, base


def area(levels: Sequence[float], values: Sequence[float | None]) -> float | None:
    """Mean height of a curve between its first and last level; at a single level its value."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return None
    if len(known) == 1:
        return known[0]
    points = list(zip(levels, known, strict=True))
    total = sum((right - left) * (one + other) / 2 for (left, one), (right, other) in pairwise(points))
    return total / (levels[-1] - levels[0])


def reaches(
    levels: Sequence[float], kept: Sequence[float | None], share: float = KEPT
) -> tuple[float | None, bool | None]:
    """The largest saving up to which a share is kept, and whether it is kept to the end of what was reached."""
    known = [(level, value) for level, value in zip(levels, kept, strict=True) if value is not None]
    if not known or known[0][1] < share:
        return None, None
    for (left, before), (right, after) in pairwise(known):
        if after < share:
            return left + (right - left) * (before - share) / (before - after), False
    return known[-1][0], True


_Place = tuple[str, Conditions, str, str]


def _scores_of(rows: Sequence[Row], method: str) -> dict[_Place, float]:
    """The score of a method that saves nothing by run (empty unless runs disagree), conditions, task and metric: the
    same on every axis.
    """
    found: dict[_Place, float] = {}
    for row in rows:
        if row.method == method and row.score is not None:
            found.setdefault((row.run or "", row.conditions, row.task, row.metric), row.score)
    return found


def _beside(row: Row, scores: Mapping[_Place, float]) -> float | None:
    place = row.conditions, row.task, row.metric
    return scores.get((row.run or row.beside or "", *place), scores.get(("", *place)))


def _kept(metric: Metric, score: float | None, whole: float | None) -> float | None:
    return None if score is None or whole is None else metric.retention(score, whole)
