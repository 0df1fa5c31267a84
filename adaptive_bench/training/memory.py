"""Repeats work that does not fit into memory in smaller batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size

from adaptive_bench.progress import Reporter

R = TypeVar("R")


def find_batch_size(what: str, work: Callable[[int], R], batch_size: int, reporter: Reporter) -> tuple[R, int]:
    """The result of some work at the largest batch size that fits, and that size.

    Args:
        what: Name of the work, for the user.
        work: Called with a batch size; it starts from the beginning each time.
        batch_size: The first size. It is halved whenever memory runs out; at 1 the error is passed on.
        reporter: Says every smaller size.
    """
    while True:
        try:
            return work(batch_size), batch_size
        except (RuntimeError, MemoryError) as error:
            if not ran_out_of_memory(error) or batch_size == 1:
                raise
        # Outside the handler, because its traceback would keep the tensors of the failed batch alive.
        batch_size //= 2
        clear_device_cache(garbage_collection=True)
        reporter.line(f"{what}: out of memory; now {batch_size} sequence(s) at a time")


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the device (or the machine) has no memory left."""
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or (isinstance(error, Exception) and should_reduce_batch_size(error))
