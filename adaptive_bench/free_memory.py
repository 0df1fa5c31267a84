"""Measures how much memory this process may still take: of the machine, of its cgroups, or of its GPU."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

_USABLE = 0.7  # share of free memory to plan with, since a process takes more than the plan counts
_ROOT = Path("/")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)
_UNLIMITED = 1 << 60  # cgroups of version 1 write a number at least this large if there is no limit
_workers = 1


def share_among(workers: int) -> None:
    """Set how many processes like this one work at once; each gets an equal part of the memory."""
    global _workers
    _workers = workers


def usable_bytes(device: torch.device, root: Path = _ROOT) -> int | None:
    """Return the bytes to plan with: this process's part of 70 % of the free memory; `None` if that is unknown.

    Args:
        root: Folder that holds `proc` and `sys`.
    """
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
