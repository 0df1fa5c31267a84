"""Several processes that work on one job together, as `torchrun` starts them: the main process and its workers.

The main process runs the program: it plans, waits, writes. It broadcasts each job that all take part in, and the
workers do it beside it. Nothing but the main process writes a record.

An error that every process meets alike (a method that raises) ends the job and no more. One that a single process
meets leaves the others waiting for it: that process ends, and `torchrun` ends the others. The records then say where to
go on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, one_line
from adaptive_bench.faults import explained

T = TypeVar("T")
_WAIT = timedelta(days=7)  # a worker has nothing to do while the main process waits for another run
_TOGETHER = timedelta(seconds=60)  # in which all must come to the end of a job, once one has


class Processes:
    """The processes that share the work with this one.

    Attributes:
        rank: Of this process; 0 is the main process.
        count: Of them all; 1 if this process is alone.
    """

    def __init__(self, rank: int = 0, count: int = 1, store: Any = None) -> None:
        self.rank, self.count, self._store = rank, count, store
        self._jobs = 0
        self._apart = False

    @property
    def is_main_process(self) -> bool:
        """Whether this process writes."""
        return self.rank == 0

    @property
    def is_single(self) -> bool:
        """Whether there is nobody else."""
        return self.count == 1

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """In the block, which all processes are in, training and evaluation are shared by them."""
        global _group
        before, _group = _group, self
        try:
            yield
        finally:
            _group = before

    def gather(self, value: Any) -> list[Any]:
        """What each process has, in their order."""
        if self.is_single:
            return [value]
        found: list[Any] = [None] * self.count
        distributed.all_gather_object(found, value)
        return found

    def pool(self, part: Callable[[], list[T]]) -> list[T]:
        """What all processes make of their parts, in their order; an error of any is raised by all."""
        if self.is_single:
            return part()
        found: tuple[list[T], AdaptiveBenchError | None]
        try:
            found = part(), None
        except Exception as error:  # noqa: BLE001 - it is raised again, on every process
            found = [], explained(error)
        every = self.gather(found)
        for _, failure in every:
            if failure is not None:
                raise failure
        return [one for values, _ in every for one in values]

    @contextmanager
    def broadcast_job(self, name: str, *about: Any) -> Iterator[None]:
        """The main process hands a job to the workers; the block is its own part of it."""
        if self.is_single or not self.is_main_process:
            yield
            return
        if self._apart:
            raise SystemExit("The processes of the run lost each other. Re-run the command; it continues.")
        distributed.broadcast_object_list([(name, about)], src=0)
        with self._reported(), self.sharing():
            yield

    def worker_loop(self, tasks: Mapping[str, Callable[..., None]]) -> None:
        """Do the jobs that the main process broadcasts, until it shuts the workers down.

        Args:
            tasks: What to do, by the name of the job.
        """
        while True:
            box: list[Any] = [None]
            distributed.broadcast_object_list(box, src=0)
            if box[0] is None:
                return
            name, about = box[0]
            try:
                with self._reported(), self.sharing():
                    tasks[name](*about)
            except Exception:  # noqa: BLE001 - the main process has met it too, and says so
                continue

    def shutdown(self) -> None:
        """End the `worker_loop` of the other processes."""
        if self.is_main_process and not self.is_single and not self._apart:
            distributed.broadcast_object_list([None], src=0)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Tell the others how this process's part ended, and end if they are not where it is."""
        self._jobs += 1
        try:
            yield
        except Exception as error:
            self._store.set(f"{self._jobs}.{self.rank}", "failed")
            if self._others() != {"failed"}:
                self._apart = True
                if not self.is_main_process:
                    raise SystemExit(f"process {self.rank} of {self.count} failed alone: {error!r}") from error
            raise
        except BaseException:
            self._store.set(f"{self._jobs}.{self.rank}", "left")
            self._apart = True
            raise
        self._store.set(f"{self._jobs}.{self.rank}", "done")

    def _others(self) -> set[str]:
        keys = [f"{self._jobs}.{rank}" for rank in range(self.count) if rank != self.rank]
        try:
            self._store.wait(keys, _TOGETHER)
        except RuntimeError:  # torch says no more than that: not all came
            return {"missing"}
        return {self._store.get(key).decode() for key in keys}


_group = Processes()


def current_group() -> Processes:
    """The processes that share what is done now: this one alone, but for `Processes.sharing`."""
    return _group


def _number(name: str, otherwise: int) -> int:
    """One of the variables that torchrun sets."""
    text = os.environ.get(name) or str(otherwise)
    if not text.isdecimal():
        raise UsageError(
            f"The environment variable {name} is a whole number, which torchrun sets, got {one_line(text, 40)!r}. "
            f"Unset it, or start the processes with torchrun."
        )
    return int(text)


@cache
def world() -> Processes:
    """The processes this one was started with; they meet in the first call.

    Raises:
        UsageError: More than one, and they share no way to meet.
    """
    count = _number("WORLD_SIZE", 1)
    if count == 1:
        return Processes()
    if "MASTER_ADDR" not in os.environ or "RANK" not in os.environ:
        raise UsageError(
            f"Several processes do one cell when torchrun starts them, got WORLD_SIZE={count} without MASTER_ADDR and "
            "RANK. Use `torchrun --nproc-per-node 2 -m adaptive_bench run ...`, or unset WORLD_SIZE."
        )
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(_number("LOCAL_RANK", 0))
        backend = "cpu:gloo,cuda:nccl"
    try:
        store, rank, count = next(iter(rendezvous("env://", timeout=timedelta(minutes=10))))
        distributed.init_process_group(
            backend, store=PrefixStore("work", store), rank=rank, world_size=count, timeout=_WAIT
        )
    except (RuntimeError, ValueError) as error:
        raise EnvironmentProblem(
            f"The {count} processes of a run must reach each other, but they do not: {error}. Start them with torchrun."
        ) from error
    return Processes(rank, count, PrefixStore("jobs", store))
