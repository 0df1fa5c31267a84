"""Writes notes for tasks whose scores say little: all at floor, ceiling or a guess, or many answers not parsable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from adaptive_bench.task import Task, metric_of

_UNPARSABLE = "unparsable,strict-match"
_MANY_UNPARSABLE = 0.1  # a larger share of unparsable documents gives a note


def floor_ceiling_notes(rows: Iterable[Mapping[str, Any]], tasks: Iterable[Task]) -> list[str]:
    """Return a sentence for each task whose headline scores say nothing about methods. Tasks whose headline metric is
    no share are passed over.

    Args:
        rows: Rows of a table with `task`, `metric`, `score`, `low` and `high`; rows of several axes and levels may be
            mixed.
        tasks: The tasks, for their headline metric and chance level.
    """
    by_metric: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["score"] is not None:
            by_metric.setdefault((row["task"], row["metric"]), []).append(row)
    notes = []
    for task in tasks:
        found = by_metric.get((task.name, task.metrics[0]))
        if not found or metric_of(task.metrics[0]).unit != "share":
            continue
        if all(row["score"] == 0 for row in found):
            notes.append(
                f"{task.name}: every score is 0, so nothing is compared. Either no model has learned the task or its "
                f"answers cannot be read: `adaptive-bench samples` shows what was written."
            )
        elif all(row["score"] == 1 for row in found):
            notes.append(f"{task.name}: every score is 100 %, so the task is too easy to tell the methods apart here.")
        elif task.chance > 0 and all(_includes(row, task.chance) for row in found):
            notes.append(f"{task.name}: no score differs from guessing ({task.chance:.0%}) by more than its interval.")
    return notes


def _includes(row: Mapping[str, Any], chance: float) -> bool:
    low, high = row["low"], row["high"]
    if low is None or high is None:
        return bool(row["score"] == chance)
    return bool(low <= chance <= high)


def unparsable_notes(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each task of which many answers cannot be parsed at some level.

    Args:
        rows: Rows of a table on one axis and phase, with `method`, `task`, `metric`, `level`, `score`, and
            `train_tokens` if it is known.
    """
    by_task: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["metric"] == _UNPARSABLE and row["score"] is not None:
            by_task.setdefault(row["task"], []).append(row)
    notes = []
    for task, every in by_task.items():
        # An untrained base model in the same table was taught no form of answer, and is not judged by it.
        found = [row for row in every if row.get("train_tokens")] or every
        worst = max(found, key=lambda row: float(row["score"]))
        if worst["score"] > _MANY_UNPARSABLE:
            dense = next((row for row in found if row["method"] == "dense"), None)
            beside = "" if dense is None else f", of dense {dense['score']:.0%}"
            notes.append(
                f"{task}: up to {worst['score']:.0%} of what was written has no answer in the form that is asked for "
                f"({worst['method']} with {100 * worst['level']:.4g}% saved{beside}); such documents count as wrong. "
                f"The metric `flexible-extract` takes answers in any form."
            )
    return notes
