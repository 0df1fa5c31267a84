"""What a method's scores over the levels say together: what is kept of a score, the area, and how far 90 % reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from adaptive_bench.metric import Metric, metric_of
from adaptive_bench.tables.comparable import Conditions, conditions_of

from .rows import Row

KEPT = 0.9
_SERIES = ("method", "semantics", "task", "metric", "axis", "phase", "timing", "projected_shape")


def series_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What the rows of one curve share: all but the level."""
    return (conditions_of(row), *(row.get(key) for key in _SERIES))


def with_curves(rows: Sequence[Row]) -> list[Row]:
    """The rows, each with:

    kept, kept_low, kept_high: The score and the ends of its interval as shares of the dense score. The dense score
        counts as known: the interval leaves out its own spread.
    kept_own: The score as a share of the method's own score where it saves nothing.
    area: Mean of `kept` from the lowest level to this one, by trapezoids between levels; `None` where a level between
        them was not reached.
    keeps_90: The largest saving up to which the method keeps 90 % of the dense score, linear between levels; `None`
        where it keeps less at its first level. Where 90 % are kept to the end, it is the last level reached.
    keeps_90_to_end: Whether that is so: more may be possible.
    """
    by_series: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        by_series.setdefault(series_key(row), []).append(row)
    curves = {key: sorted(found, key=lambda row: row["level"]) for key, found in by_series.items()}
    scores = _dense_scores(rows)
    summaries = {}
    for key, curve in curves.items():
        dense = _dense(curve[0], scores)
        metric = metric_of(curve[0]["metric"])
        own = next((row["score"] for row in curve if row["level"] == 0), None)
        kept = [_kept(metric, row["score"], dense) for row in curve]
        reach, to_end = reaches([row["level"] for row in curve], kept)
        for place, row in enumerate(curve):
            ends = [_kept(metric, row[end], dense) for end in ("low", "high")]
            low, high = (None, None) if None in ends else sorted(ends)  # type: ignore[type-var]
            summaries[key, row["level"]] = {
                "kept": kept[place],
                "kept_low": low,
                "kept_high": high,
                "kept_own": _kept(metric, row["score"], own),
                "area": area([one["level"] for one in curve[: place + 1]], kept[: place + 1]),
                "keeps_90": reach,
                "keeps_90_to_end": to_end,
            }
    return [row | summaries[series_key(row), row["level"]] for row in rows]


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


def _dense_scores(rows: Sequence[Row]) -> dict[_Place, float]:
    """The dense score by run (empty unless runs disagree), conditions, task and metric: the same on every axis."""
    found: dict[_Place, float] = {}
    for row in rows:
        name, run = _run(row)
        if name == "dense" and row["score"] is not None:
            found.setdefault((run, conditions_of(row), row["task"], row["metric"]), row["score"])
    return found


def _dense(row: Row, scores: Mapping[_Place, float]) -> float | None:
    place = conditions_of(row), row["task"], row["metric"]
    return scores.get((_run(row)[1], *place), scores.get(("", *place)))


def _run(row: Row) -> tuple[str, str]:
    """A method's name, and the run that `joined` put behind it."""
    name, _, run = row["method"].partition(" (")
    return name, run


def _kept(metric: Metric, score: float | None, whole: float | None) -> float | None:
    return None if score is None or whole is None else metric.retention(score, whole)
