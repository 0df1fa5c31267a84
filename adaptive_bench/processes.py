"""Lets several processes started by `torchrun` work on one job together: a main process and its workers.

The main process runs the program: it plans, waits and writes. It broadcasts each shared job, and the workers do it
together with the main process. Only the main process writes records.

An error that all processes meet (a method that raises) ends only the job. An error in a single process would leave the
others waiting for it: so that process exits, and `torchrun` ends the others. The records then say where to continue.
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

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, explained

T = TypeVar("T")
_WAIT = timedelta(days=7)  # a worker has nothing to do while the main process waits for another run
_TOGETHER = timedelta(seconds=60)  # once one process has ended a job, all others must within this time


class Processes:
    """The processes that share the work with this one.

    Attributes:
        rank: Rank of this process; 0 is the main process.
        count: Number of processes; 1 if this process is alone.
    """

    def __init__(self, rank: int = 0, count: int = 1, store: Any = None) -> None:
        self.rank, self.count, self._store = rank, count, store
        self._jobs = 0
        self._apart = False

    @property
    def is_main_process(self) -> bool:
        """Whether this is the main process, which writes the records."""
        return self.rank == 0

    @property
    def is_single(self) -> bool:
        """Whether there are no other processes."""
        return self.count == 1

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Share training and evaluation among all processes within the block, which all of them have to enter."""
        global _group
        before, _group = _group, self
        try:
            yield
        finally:
            _group = before

    def gather(self, value: Any) -> list[Any]:
        """Return the value of each process, in the order of their ranks."""
        if self.is_single:
            return [value]
        found: list[Any] = [None] * self.count
        distributed.all_gather_object(found, value)
        return found

    def pool(self, part: Callable[[], list[T]]) -> list[T]:
        """Return the results of all processes' parts, in the order of their ranks; an error in one is raised in all."""
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
        """Hand a job from the main process to the workers; the block is the main process's own part of it."""
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
            tasks: The function that does a job, by the name of the job.
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
            except Exception:  # noqa: BLE001 - the main process has met it too, and reports it
                continue

    def shutdown(self) -> None:
        """End the `worker_loop` of the other processes."""
        if self.is_main_process and not self.is_single and not self._apart:
            distributed.broadcast_object_list([None], src=0)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Tell the others how this process's part of the job ended; exit if it failed here but not in all of them."""
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
        except RuntimeError:  # torch raises this if not all processes got here in time
            return {"missing"}
        return {self._store.get(key).decode() for key in keys}


_group = Processes()


def current_group() -> Processes:
    """Return the processes that share the current work: this one alone, except within `Processes.sharing`."""
    return _group


@cache
def world() -> Processes:
    """Return the processes that this one was started with; the first call connects them.

    Raises:
        EnvironmentProblem: The processes cannot reach each other, or torchrun did not say how.
    """
    count = int(os.environ.get("WORLD_SIZE", 1))
    if count == 1:
        return Processes()
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        backend = "cpu:gloo,cuda:nccl"
    try:
        store, rank, count = next(iter(rendezvous("env://", timeout=timedelta(minutes=10))))
        distributed.init_process_group(
            backend, store=PrefixStore("work", store), rank=rank, world_size=count, timeout=_WAIT
        )
    except (RuntimeError, ValueError) as error:
        raise EnvironmentProblem(
            f"The {count} processes of a run (WORLD_SIZE) must reach each other, but they do not: {error} Start them "
            f"with `torchrun --nproc-per-node 2 -m adaptive_bench run ...`, or unset WORLD_SIZE."
        ) from error
    return Processes(rank, count, PrefixStore("jobs", store))
