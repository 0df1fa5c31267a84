"""Which documents of a task a limit leaves: a draw, as files are often sorted."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from lm_eval.api.task import Task as HarnessTask

from adaptive_bench.task import Task

DRAW_SEED = 1234  # no seed of a training: every method and every training is asked the same documents


def drawn(task: Task, count: int, limit: int | None, *, mixed: bool | None = None) -> Sequence[int]:
    """Numbers of the documents that a limit leaves of `count`, ascending. A lower limit leaves some of the same ones.

    Args:
        mixed: Whether to take the first documents; by default where the task says that it mixes them.
    """
    if limit is None or limit >= count or (task.mixed if mixed is None else mixed):
        return range(count)[:limit]
    numbers = list(range(count))
    random.Random(DRAW_SEED).shuffle(numbers)
    return sorted(numbers[:limit])


def ask_only(harness: HarnessTask, numbers: Sequence[int]) -> None:
    """Have a task ask these documents, each under its own number: by lm-eval's `samples` they are counted anew."""

    def chosen(rank: int = 0, world_size: int = 1, **_: Any) -> Iterator[tuple[int, Any]]:
        documents: Any = harness.eval_docs
        documents = documents if hasattr(documents, "__getitem__") else list(documents)
        return islice(((number, documents[number]) for number in numbers), rank, None, world_size)

    harness.doc_iterator = chosen
