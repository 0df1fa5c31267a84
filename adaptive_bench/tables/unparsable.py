"""Notes for tasks whose scores rest on answers that could not be parsed: they measure form, not knowledge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_METRIC = "unparsable,strict-match"
_MANY = 0.1  # a larger share of unparsable documents gives a note


def unparsable_notes(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each task of which many answers cannot be parsed at some level.

    Args:
        rows: Rows of a table on one axis and phase, with `method`, `task`, `metric`, `level`, `score`, and
            `train_tokens` if it is known.
    """
    by_task: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["metric"] == _METRIC and row["score"] is not None:
            by_task.setdefault(row["task"], []).append(row)
    notes = []
    for task, every in by_task.items():
        # An untrained base model in the same table was taught no form of answer, and is not judged by it.
        found = [row for row in every if row.get("train_tokens")] or every
        worst = max(found, key=lambda row: float(row["score"]))
        if worst["score"] > _MANY:
            dense = next((row for row in found if row["method"] == "dense"), None)
            beside = "" if dense is None else f", of dense {dense['score']:.0%}"
            notes.append(
                f"{task}: up to {worst['score']:.0%} of what was written has no answer in the form that is asked for "
                f"({worst['method']} with {100 * worst['level']:.4g}% saved{beside}); such documents count as wrong. "
                f"The metric `flexible-extract` takes answers in any form."
            )
    return notes
