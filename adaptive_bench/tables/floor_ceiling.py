"""Notes for tasks that cannot tell methods apart: every score is at the floor, the ceiling or the level of a guess."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from adaptive_bench.metric import metric_of
from adaptive_bench.task import Task


def floor_ceiling_notes(rows: Iterable[Mapping[str, Any]], tasks: Iterable[Task]) -> list[str]:
    """Return a sentence for each task whose headline scores say nothing about methods. Tasks whose headline metric is
    no share are passed over.

    Args:
        rows: Rows of a table with `task`, `metric`, `score`, `low` and `high`; rows of several axes and levels may be
            mixed.
        tasks: The tasks, for their headline metric and chance level.
    """
    rows = list(rows)
    return [note for task in tasks if (note := _note(task, [row for row in rows if _of(row, task)])) is not None]


def _of(row: Mapping[str, Any], task: Task) -> bool:
    return row["task"] == task.name and row["metric"] == task.metrics[0] and row["score"] is not None


def _note(task: Task, rows: list[Mapping[str, Any]]) -> str | None:
    scores = [float(row["score"]) for row in rows]
    if not scores or metric_of(task.metrics[0]).unit != "share":
        return None
    if max(scores) == 0:
        return (
            f"{task.name}: every score is 0, so nothing is compared. Either no model has learned the task or its "
            f"answers cannot be read: `adaptive-bench samples` shows what was written."
        )
    if min(scores) == 1:
        return f"{task.name}: every score is 100 %, so the task is too easy to tell the methods apart here."
    chance = task.chance
    if chance > 0 and not math.isnan(chance) and all(_includes(row, chance) for row in rows):
        return f"{task.name}: no score differs from guessing ({chance:.0%}) by more than its interval."
    return None


def _includes(row: Mapping[str, Any], chance: float) -> bool:
    low, high = row["low"], row["high"]
    if low is None or high is None:
        return bool(row["score"] == chance)
    return bool(low <= chance <= high)
