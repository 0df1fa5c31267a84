"""Chooses the documents that a limit leaves: a random draw, since files are often sorted."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from lm_eval.api.task import Task as HarnessTask

from adaptive_bench.task import Task

DRAW_SEED = 1234  # independent of the training's seed, so that every method and training is asked the same documents


def drawn(task: Task, count: int, limit: int | None, *, mixed: bool | None = None) -> Sequence[int]:
    """Numbers of the `limit` documents chosen from `count`, ascending. A lower limit chooses a subset of them.

    Args:
        mixed: Whether documents are already in random order, so that the first ones are taken; by default as the task
            says.
    """
    if limit is None or limit >= count or (task.mixed if mixed is None else mixed):
        return range(count)[:limit]
    numbers = list(range(count))
    random.Random(DRAW_SEED).shuffle(numbers)
    return sorted(numbers[:limit])


def ask_only(harness: HarnessTask, numbers: Sequence[int]) -> None:
    """Restrict a task to these documents, which keep their numbers; lm-eval's `samples` would renumber them."""

    def chosen(rank: int = 0, world_size: int = 1, **_: Any) -> Iterator[tuple[int, Any]]:
        documents: Any = harness.eval_docs
        documents = documents if hasattr(documents, "__getitem__") else list(documents)
        return islice(((number, documents[number]) for number in numbers), rank, None, world_size)

    harness.doc_iterator = chosen
