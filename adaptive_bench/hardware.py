"""Finds and describes the device, measures what memory is free there, and repeats work that does not fit into it."""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import torch

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.progress import Reporter

R = TypeVar("R")
_LIBRARIES = ("adaptive-bench", "torch", "transformers", "lm-eval", "accelerate", "datasets")
_USABLE = 0.7  # share of free memory to plan with, since a process takes more than the plan counts
_ROOT = Path("/")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)
_UNLIMITED = 1 << 60  # cgroups of version 1 write a number at least this large if there is no limit
_workers = 1


def find_device(name: str) -> torch.device:
    """Return the torch device behind `auto`, `cpu`, `cuda:0`, ..."""
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


def processor() -> str:
    """Return the name of the CPU."""
    file = Path("/proc/cpuinfo")
    model = re.search(r"^model name\s*: (.+)$", file.read_text(), re.MULTILINE) if file.is_file() else None
    return " ".join(model[1].split()) if model else platform.processor() or platform.machine()


def describe_device(device: torch.device | str) -> str:
    """Return the name of the GPU or the CPU behind a device."""
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else processor()


def environment(device: torch.device | str) -> dict[str, Any]:
    """Return versions and hardware of this process, as records keep them in `env.json`."""
    return {
        "machine": platform.node(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{library: version(library) for library in _LIBRARIES},
        "device": str(device),
        "device_name": describe_device(device),
        "threads": torch.get_num_threads(),
    }


def share_among(workers: int) -> None:
    """Set how many processes like this one work at once; each gets an equal part of the memory."""
    global _workers
    _workers = workers


def usable_bytes(device: torch.device, root: Path = _ROOT) -> int | None:
    """Return the bytes to plan with: this process's part of 70 % of the free memory; `None` if that is unknown."""
    free = free_on(device, root)
    return None if free is None else int(_USABLE * free / _workers)


def free_on(device: torch.device, root: Path = _ROOT) -> int | None:
    """Return all free memory of a device; `None` if that is unknown. On the CPU it is the smallest of what the machine
    and every cgroup of this process has left.
    """
    if device.type == "cuda" and torch.cuda.is_available():
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    if device.type != "cpu":
        return None
    found = [_free_of_machine(root), *_free_of_cgroups(root)]
    return min((each for each in found if each is not None), default=None)


def keep_blocks() -> None:
    """Make the C library (glibc) keep freed blocks until `give_back`. By default it returns large blocks to the system
    one by one, and a training step of SmolLM2 on two cores spends a twelfth of its time on getting them again.
    """
    _trim(1 << 30, (1 << 31) - 1)


def give_back() -> None:
    """Make the C library (glibc) return freed blocks to the system and stop keeping large ones. Blocks that it keeps
    would not count as free when memory is planned.
    """
    _trim(32 << 20, 64 << 20)  # the values to which glibc itself raises them in a running program


def _trim(mmap_threshold: int, trim_threshold: int) -> None:
    if (library := _glibc()) is not None:
        library.mallopt(_MMAP_THRESHOLD, mmap_threshold)
        library.mallopt(_TRIM_THRESHOLD, trim_threshold)
        library.malloc_trim(ctypes.c_size_t(0))


def _free_of_machine(root: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _free_of_cgroups(root: Path) -> list[int]:
    """Return the free memory of each limited cgroup from this process's up to the top; file cache counts as free."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        limit, used, cache = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            if controllers
            else ("memory.max", "memory.current", "inactive_file")
        )
        own = top / path.strip("/")
        for folder in [own, *own.parents]:
            if not folder.is_relative_to(top):
                break
            with suppress(OSError, ValueError):
                most = int((folder / limit).read_text())  # version 2 has `max` if there is no limit: a ValueError
                if most >= _UNLIMITED:
                    continue
                numbers = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                found.append(most - int((folder / used).read_text()) + int(numbers.get(cache, 0)))
    return found


@cache
def _glibc() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    return library if hasattr(library, "malloc_trim") else None


class OutOfMemory(EnvironmentProblem):
    """A batch does not fit into memory; `find_batch_size` tries a smaller one."""


def find_batch_size(
    what: str,
    work: Callable[[int], R],
    batch_size: int,
    reporter: Reporter,
    is_shortage: Callable[[Exception], bool] | None = None,
) -> tuple[R, int]:
    """Return the result of some work at the largest batch size that fits, and that size: the first one, halved whenever
    memory runs out. The work then starts from the beginning; at 1 the error is passed on.

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
