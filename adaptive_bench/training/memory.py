"""Work that does not fit into memory is done again in smaller batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size

Result = TypeVar("Result")


def find_batch_size(work: Callable[[int], Result], batch_size: int, say: Callable[[int], None]) -> tuple[Result, int]:
    """What some work gives at the largest batch size that fits, and that size.

    Args:
        work: Done with a batch size, from the start each time.
        batch_size: Tried first; halved whenever memory runs out, down to 1, where the error is passed on.
        say: Told every smaller size.
    """
    while True:
        try:
            return work(batch_size), batch_size
        except (RuntimeError, MemoryError) as error:
            if not ran_out_of_memory(error) or batch_size == 1:
                raise
        # Outside the handler: its traceback would keep the tensors of the failed batch alive.
        batch_size //= 2
        clear_device_cache(garbage_collection=True)
        say(batch_size)


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the device (or the machine) has no memory left."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, Exception) and should_reduce_batch_size(error)
