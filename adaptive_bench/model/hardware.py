"""Finds the device and the batch size that fits, and describes the environment for records."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, TypeVar

import torch

from adaptive_bench.backbone.products import processor
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.progress import Reporter

R = TypeVar("R")


def find_device(name: str) -> torch.device:
    """The torch device behind `auto`, `cpu`, `cuda:0`, ..."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError(f"{device.type} is not supported")
        # A device of a valid name may still be missing; only using it tells.
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"A device is auto, cpu, cuda or cuda:<number>, got {name!r}: {reason}. Set --device, or device= in Python."
        ) from error
    return device


_LIBRARIES = ("adaptive-bench", "torch", "transformers", "lm-eval", "accelerate", "datasets")


def describe_device(device: torch.device | str) -> str:
    """Name of the GPU or the CPU behind a device."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor()


def environment(device: torch.device | str) -> dict[str, Any]:
    """Versions and hardware of this process, as records keep them in `env.json`."""
    return {
        "machine": platform.node(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{library: version(library) for library in _LIBRARIES},
        "device": str(device),
        "device_name": describe_device(device),
        "threads": torch.get_num_threads(),
    }


class OutOfMemory(EnvironmentProblem):
    """A batch does not fit into memory; `find_batch_size` tries a smaller one."""


def find_batch_size(
    what: str,
    work: Callable[[int], R],
    batch_size: int,
    reporter: Reporter,
    is_shortage: Callable[[Exception], bool] | None = None,
) -> tuple[R, int]:
    """The result of some work, which starts from the beginning each time, at the largest batch size that fits, and that
    size: the first one, halved whenever memory runs out. At 1 the error is passed on.

    Args:
        is_shortage: Tells which errors mean that; by default all that say so (`ran_out_of_memory`).
    """
    from accelerate.utils.memory import clear_device_cache  # absent where only PyTorch and transformers are

    while True:
        try:
            return work(batch_size), batch_size
        except Exception as error:
            if not (is_shortage or ran_out_of_memory)(error) or batch_size == 1:
                raise
        # Outside the handler, because its traceback would keep the tensors of the failed batch alive.
        batch_size //= 2
        clear_device_cache(garbage_collection=True)
        reporter.line(f"{what}: out of memory; now {batch_size} sequence(s) at a time")


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the device (or the machine) has no memory left."""
    from accelerate.utils.memory import should_reduce_batch_size

    known = isinstance(error, MemoryError | torch.OutOfMemoryError | OutOfMemory)
    return known or (isinstance(error, Exception) and should_reduce_batch_size(error))
