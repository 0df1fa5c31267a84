"""What was measured on one task, as the record says it: scores, savings, and headroom at each level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from adaptive_bench.headroom.asked import Asked
from adaptive_bench.headroom.knapsack import Floats
from adaptive_bench.headroom.per_sequence import Askings, AtSaving, at_saving, floor_at
from adaptive_bench.headroom.sensitivity import dominance
from adaptive_bench.metric import Metric
from adaptive_bench.tables.comparison import paired_difference
from adaptive_bench.tables.intervals import interval
from adaptive_bench.task import Task


def task_record(
    *,
    task: Task,
    metric: Metric,
    settings: Mapping[str, Any],
    sets: Sequence[tuple[int, ...]],
    validation: Sequence[Asked],
    runs: Sequence[Sequence[Asked]],
    again: Sequence[Asked],
    online: Asked,
    exits: Mapping[str, Any],
    sites: Sequence[dict[str, Any]],
    asked_once: str | None,
) -> dict[str, Any]:
    """Plain values. Differences are positive where the oracle is better, whichever way the metric goes.

    Args:
        sets: K candidates, the first leaves out nothing.
        validation: [K] on validation documents.
        runs: [askings][K] on test documents.
        again: The full model asked in many ways; none where it cannot be.
        asked_once: Why there is one asking, or `None`.
    """
    sign = 1 if metric.better == "higher" else -1
    found = Askings(
        scores=[np.array([sign * np.array(one.scores) for one in some]).T for some in runs],
        agrees=[_agreement(some) for some in runs if all(one.answers is not None for one in some)],
        priors=np.array([sign * one.score for one in validation]),
        costs=np.array([1.0 - np.mean([some[place].saved for some in runs]) for place in range(len(sets))]),
    )
    levels = [_level(found, online, level, settings["seed"], metric) for level in settings["levels"]]
    dense = interval([runs[0][0].scores], (metric.low, metric.high))
    return {
        "task": task.name,
        "metric": task.metrics[0],
        "better": metric.better,
        "unit": metric.unit,
        "chance": task.chance if np.isfinite(task.chance) else None,
        "documents": len(runs[0][0].scores),
        "asked_once": asked_once,
        "dense": {"score": dense.mean, "low": dense.low, "high": dense.high},
        "dense_again": _again(again, sign),
        "asking_changes": _changes(found.scores),
        "sets": [
            {
                "skipped": list(skipped),
                "saved": 1.0 - float(found.costs[place]),
                "validation": validation[place].score,
                "test": [some[place].score for some in runs],
                "scores": [some[place].scores for some in runs],
                "answers_agree": [float(table[:, place].mean()) for table in found.agrees] or None,
            }
            for place, skipped in enumerate(sets)
        ],
        "crossed_by": "agreement" if found.agrees else "gold",
        "levels": levels,
        "exit_oracle": {**exits, "online": _online(_first(found), online, runs[0][0], metric)},
        "sites": {
            "dominance": {
                name: {where: dominance(sites, name, where) for where in ("everywhere", "answers")}
                for name in ("share", "all")
            },
            "rows": list(sites),
        },
    }


def _agreement(some: Sequence[Asked]) -> Floats:
    """[D, K] whether the answers are those of the first one."""
    return np.array(
        [[mine == full for mine, full in zip(one.answers or (), some[0].answers or (), strict=True)] for one in some],
        dtype=float,
    ).T


def _level(askings: Askings, online: Asked, level: float, seed: int, metric: Metric) -> dict[str, Any]:
    read = at_saving(askings, level, seed)
    if read is None:
        return {"level": level, "reached": False}
    sign = 1 if metric.better == "higher" else -1
    return {
        "level": level,
        "reached": True,
        "static": sign * float(read.floor.mean()),
        "static_weights": read.weights.tolist(),
        **{name: None if scores is None else sign * float(scores.mean()) for name, scores in _readings(read).items()},
        "in_sample": _difference(read.gold, read.floor, metric),
        "headroom": None if read.crossed is None else _difference(read.crossed, read.floor, metric),
        "headroom_of_exits": _above_floor(_first(askings), online, level, metric) if online.saved >= level else None,
    }


def _first(askings: Askings) -> Askings:
    """The first asking alone, the task as it is."""
    return Askings(askings.scores[:1], askings.agrees[:1], askings.priors, askings.costs)


def _above_floor(askings: Askings, online: Asked, saving: float, metric: Metric) -> dict[str, Any] | None:
    """The attainable exit oracle less the best static mixture that saves so much; `None` where none does."""
    floor = floor_at(askings, saving)
    sign = 1 if metric.better == "higher" else -1
    return None if floor is None else _difference(sign * np.array(online.scores), floor[1], metric)


def _readings(read: AtSaving) -> dict[str, Floats | None]:
    return {
        "gold": read.gold,
        "agreement": read.agreement,
        "cross_fitted": read.crossed,
        "cross_fitted_gold": read.crossed_gold,
        "chance_gold": read.chance,
    }


def _online(askings: Askings, online: Asked, dense: Asked, metric: Metric) -> dict[str, Any]:
    """The attainable exit oracle beside the best static mixture that saves as much."""
    sign = 1 if metric.better == "higher" else -1
    agreement = None
    if online.answers is not None and dense.answers is not None:
        agreement = float(np.mean([mine == full for mine, full in zip(online.answers, dense.answers, strict=True)]))
    known = {"saved": online.saved, "score": online.score, "agreement": agreement}
    saving = max(0.0, online.saved)
    floor = floor_at(askings, saving)
    return {
        **known,
        "static": None if floor is None else sign * float(floor[1].mean()),
        "headroom": _above_floor(askings, online, saving, metric),
    }


def _changes(scores: Sequence[Floats]) -> float | None:
    """How much the score of a document moves from one asking to the next, averaged over sets that leave layers out."""
    if len(scores) < 2:
        return None
    return float(np.mean([np.abs(scores[0][:, 1:] - other[:, 1:]).mean() for other in scores[1:]]))


def _again(again: Sequence[Asked], sign: int) -> dict[str, Any] | None:
    """What a maximum over as many runs gains that differ in luck alone."""
    if not again:
        return None
    table = np.array([sign * np.array(one.scores) for one in again])
    return {
        "askings": len(again),
        "mean": sign * float(table.mean()),
        "maximum": sign * float(table.max(axis=0).mean()),
    }


def _difference(first: Floats, second: Floats, metric: Metric) -> dict[str, Any]:
    sign = 1 if metric.better == "higher" else -1
    bounds = (metric.low, metric.high) if sign > 0 else (-metric.high, -metric.low)
    # Rounding must not leave the metric's range.
    found = paired_difference(np.clip(first, *bounds)[None], np.clip(second, *bounds)[None], bounds)
    return {
        **{name: asdict(found)[name] for name in ("difference", "low", "high", "p")},
        "holds_0": found.low is None or found.low <= 0.0,
    }
