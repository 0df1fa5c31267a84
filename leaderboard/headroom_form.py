"""Whether a record of headroom can be one: what follows from its scores is made again, the rest lies in its range."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from adaptive_bench.metric import metric_of
from adaptive_bench.tables.crossed import Floats
from adaptive_bench.tables.intervals import Bounds, bounds_of, interval

from .plain import plain
from .rows import Rejected

_READINGS = ("static", "gold", "agreement", "cross_fitted", "cross_fitted_gold", "chance_gold")
_DIFFERENCES = ("in_sample", "headroom", "headroom_of_exits")
_ORACLES = {"in_sample": "gold", "headroom": "cross_fitted"}  # the reading that a difference with the static one is of
_ROUNDING = 1e-9
_Value = tuple[str, Any, float, float]  # where it stands, what it is, and between what it lies


def check_task(about: Mapping[str, Any], metrics: Mapping[str, Collection[str]]) -> None:
    """Refuse what `headroom` cannot have found on a task.

    Args:
        about: One of the tasks of a record.
        metrics: By task of the table its metrics there.

    Raises:
        Rejected: With what is said, and what it should be.
    """
    name = str(about["task"])
    if name not in metrics:
        raise Rejected(f"headroom.json is about {plain(name, 40)!r}, which is no task of the table")
    if about["metric"] not in metrics[name]:
        raise Rejected(f"headroom.json: {name}, {plain(about['metric'], 40)!r} is no metric that the table has of it")
    metric = metric_of(about["metric"])
    _check_same(f"{name}, unit and better", [about["unit"], about["better"]], [metric.unit, metric.better])
    tables = _tables(about)
    _check_made(about, tables)
    for where, value, low, high in _values(about, bounds_of(metric, tables)):
        if not _is_number(value) or not low - _ROUNDING <= value <= high + _ROUNDING:
            raise Rejected(
                f"headroom.json: {name}, {where} is a number from {low:g} to {high:g}, got {plain(value, 40)}"
            )
    _check_levels(about)
    _check_differences(about)
    for where, one in _differences(about):
        if one["low"] is not None and not one["low"] <= one["difference"] <= one["high"]:
            raise Rejected(f"headroom.json: {name}, {where} lies outside its own interval")
        _check_same(f"{name}, {where}.holds_0", one["holds_0"], one["low"] is None or one["low"] <= 0.0)


def _tables(about: Mapping[str, Any]) -> list[Floats]:
    """Of each set the scores, [askings, documents]."""
    scores = [one["scores"] for one in about["sets"]]
    if not scores or len({(len(some), *map(len, some)) for some in scores}) > 1 or len(set(map(len, scores[0]))) != 1:
        raise Rejected(f"headroom.json: {about['task']}, every set has a score for each asking and document")
    return [np.array(some, dtype=float) for some in scores]


def _check_made(about: Mapping[str, Any], tables: Sequence[Floats]) -> None:
    """What is the mean of scores that stand beside it is that mean."""
    name, metric, sets = about["task"], metric_of(about["metric"]), about["sets"]
    _check_same(f"{name}, documents", about["documents"], tables[0].shape[1])
    if sets[0]["skipped"] != []:
        raise Rejected(f"headroom.json: {name}, the first set leaves nothing out, got {plain(sets[0]['skipped'], 40)}")
    dense = interval([tables[0][0].tolist()], (metric.low, metric.high))
    for key, value in (("score", dense.mean), ("low", dense.low), ("high", dense.high)):
        _check_near(f"{name}, dense.{key}", about["dense"][key], value)
    for number, (one, scores) in enumerate(zip(sets, tables, strict=True)):
        if len(one["test"]) != len(scores):
            raise Rejected(f"headroom.json: {name}, sets[{number}].test has a score for each asking")
        for asking, given in enumerate(one["test"]) if metric.is_mean else ():
            _check_near(f"{name}, sets[{number}].test[{asking}]", given, fmean(scores[asking]))
    if about["asking_changes"] is not None:
        moved = [[abs(one[0] - other).mean() for other in one[1:]] for one in tables[1:]]
        _check_near(f"{name}, asking_changes", about["asking_changes"], float(np.mean(moved)))


def _check_levels(about: Mapping[str, Any]) -> None:
    name, levels, most = about["task"], about["levels"], max(one["saved"] for one in about["sets"])
    if [one["level"] for one in levels] != sorted({one["level"] for one in levels}):
        raise Rejected(f"headroom.json: {name}, the levels rise, each once")
    for number, one in enumerate(levels):
        _check_same(f"{name}, levels[{number}].reached", one["reached"], one["level"] <= most)


def _check_differences(about: Mapping[str, Any]) -> None:
    """A headroom is what an oracle reads less what the best static set does, both of which stand beside it."""
    sign, online = 1 if about["better"] == "higher" else -1, about["exit_oracle"]["online"]
    found = [
        (f"levels[{number}].{name}", level[name], level[oracle], level["static"])
        for number, level in enumerate(about["levels"])
        for name, oracle in _ORACLES.items()
        if level["reached"]
    ]
    found.append(("exit_oracle.online.headroom", online["headroom"], online["score"], online["static"]))
    for where, difference, oracle, static in found:
        if difference is not None:
            known = None if oracle is None else sign * (oracle - static)
            _check_near(f"{about['task']}, {where}.difference", difference["difference"], known)


def _values(about: Mapping[str, Any], bounds: Bounds) -> Iterator[_Value]:
    low, high = bounds
    if about["chance"] is not None:
        yield "chance", about["chance"], low, high
    for number, one in enumerate(about["sets"]):
        yield f"sets[{number}].saved", one["saved"], -math.inf, 1.0
        yield f"sets[{number}].validation", one["validation"], low, high
        yield from ((f"sets[{number}].test", value, low, high) for value in one["test"])
        yield from ((f"sets[{number}].answers_agree", value, 0.0, 1.0) for value in one["answers_agree"] or ())
    for number, level in enumerate(about["levels"]):
        at = f"levels[{number}]"
        yield f"{at}.level", level["level"], 0.0, 1.0
        if level["reached"]:
            yield from ((f"{at}.{name}", level[name], low, high) for name in _READINGS if level[name] is not None)
            yield from ((f"{at}.static_weights", value, 0.0, 1.0) for value in level["static_weights"])
            yield f"{at}.static_weights together", sum(level["static_weights"]), 1 - 1e-6, 1 + 1e-6
    again = about["dense_again"] or {}
    yield from ((f"dense_again.{name}", again[name], low, high) for name in ("mean", "maximum") if again)
    yield from ((f"dense_again.{name}", again[name], 1, math.inf) for name in ("askings",) if again)
    online = about["exit_oracle"]["online"]
    yield "exit_oracle.online.saved", online["saved"], -math.inf, 1.0
    yield "exit_oracle.online.score", online["score"], low, high
    for where, one in _differences(about):
        yield from (
            (f"{where}.{name}", one[name], low - high, high - low)
            for name in ("difference", "low", "high")
            if one[name] is not None
        )
        yield from ((f"{where}.{name}", one[name], 0.0, 1.0) for name in ("p",) if one[name] is not None)


def _differences(about: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, level in enumerate(about["levels"]):
        for name in _DIFFERENCES if level["reached"] else ():
            if level[name] is not None:
                yield f"levels[{number}].{name}", level[name]
    if (found := about["exit_oracle"]["online"]["headroom"]) is not None:
        yield "exit_oracle.online.headroom", found


def _check_same(where: str, given: object, known: object) -> None:
    if given != known:
        raise Rejected(f"headroom.json: {where} is {plain(known, 60)}, got {plain(given, 60)}")


def _check_near(where: str, given: Any, known: float | None) -> None:
    if known is None or not _is_number(given):
        is_near = given is known
    else:
        is_near = math.isclose(given, known, rel_tol=1e-6, abs_tol=_ROUNDING)
    if not is_near:
        raise Rejected(f"headroom.json: {where} is {known}, by the scores beside it, got {plain(given, 40)}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
