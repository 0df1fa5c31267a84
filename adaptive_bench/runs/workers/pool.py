"""Work in several processes, each with its share of the cores. They end with the parent, even if it is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from adaptive_bench import registry, stopping
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.progress import Meter, Reporter
from adaptive_bench.runs.workers.chains import Chain, Failure, Work, attempt
from adaptive_bench.runs.workers.printed import Printed
from adaptive_bench.runs.workers.relay import Relay, RemoteReporter
from adaptive_bench.runs.workers.watchdog import NO_LIMITS, Limits, Watch

# How long a stopped worker has to write down where it stands.
_GRACE_S = 10.0
_LOOK_S = 1.0  # between two looks whether the parent was asked to stop
_KILLED = (
    "its process was ended by the system twice, most likely because memory ran out. The same command goes on from "
    "where it stopped; finished work is kept."
)
_worker_reporter: RemoteReporter | None = None
_busy = False


def in_parallel(
    chains: list[Chain], reporter: Reporter, overall: Meter, jobs: int, limits: Limits = NO_LIMITS
) -> list[Failure]:
    """Do chains in `jobs` processes. What builds on a training starts when the training is done.

    Args:
        limits: Of each piece of work.
    """
    context = multiprocessing.get_context("spawn")
    alive, keep_alive = context.Pipe(duplex=False)
    threads = max(1, torch.get_num_threads() // jobs)
    with Relay(reporter, overall) as relay:
        workers = [_Worker(context, relay, (alive, threads, registry.plugin_files())) for _ in range(jobs)]
        try:
            return _Schedule(chains, reporter, workers, limits).run()
        except BaseException:
            reporter.line(f"Stopping: each process keeps where it stands, in at most {_GRACE_S:.0f} seconds.")
            keep_alive.close()
            raise
        finally:
            with _no_interrupts():  # a second Ctrl-C could not make it quicker, only leave something behind
                for worker in workers:
                    worker.close()


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Ctrl-C waits for the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Worker:
    """One process, in a pool of its own: the system may end it without harm to the others, and its work is known."""

    def __init__(self, context: SpawnContext, relay: Relay, arguments: tuple[Any, ...]) -> None:
        self.context, self.relay, self.arguments = context, relay, arguments
        self.process: BaseProcess | None = None
        self.watch: Watch | None = None
        self._start()

    def submit(self, work: Work) -> Future[list[Failure]]:
        with _no_interrupts():  # a process that is started here begins with what holds here
            try:
                return self._give(work)
            except BrokenProcessPool:  # it was ended while it had nothing to do
                self.replace()
                return self._give(work)

    def _give(self, work: Work) -> Future[list[Failure]]:
        future = self.pool.submit(_do, work)
        self.process = next(iter(self.pool._processes.values()), None)  # nobody else names it before Python 3.14
        return future

    def _moved(self) -> None:
        if self.watch is not None:
            self.watch.moved()

    def replace(self) -> None:
        """Another process in place of one that is gone."""
        self.close()
        self._start()

    def close(self) -> None:
        """Wait for its end. One that was asked to end and cannot, because its code never comes up for air, is ended."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        if self.process is not None and not wait_for([self.process.sentinel], _GRACE_S + _LOOK_S):
            self.process.kill()
        self.pool.shutdown(wait=True)
        self.speaker.close()

    def _start(self) -> None:
        self.process = None
        self.speaker = self.relay.speaker(self.context, self._moved)
        self.pool = ProcessPoolExecutor(1, self.context, start_worker, (self.speaker, *self.arguments))


class _Schedule:
    """Gives work to workers. What one was at when the system ended it is given once more: it goes on from there."""

    def __init__(
        self, chains: list[Chain], reporter: Reporter, workers: list[_Worker], limits: Limits = NO_LIMITS
    ) -> None:
        self.limits = limits
        self.waiting, self.reporter, self.free = list(chains), reporter, list(workers)
        self.ready: deque[tuple[Chain, Work]] = deque()
        self.pending: dict[Future[list[Failure]], tuple[_Worker, Chain, Work, Watch]] = {}
        self.given_again: set[int] = set()

    def run(self) -> list[Failure]:
        """Everything; gives back what could not be done."""
        failures: list[Failure] = []
        self._take_ready()
        while self.ready or self.pending:
            while self.ready and self.free:
                worker, (chain, work) = self.free.pop(), self.ready.popleft()
                worker.watch = watch = Watch(work, self.limits, self.reporter, partial(getattr, worker, "process"))
                self.pending[worker.submit(work)] = (worker, chain, work, watch)
            stopping.check()
            for *_, watch in self.pending.values():
                watch.look()
            for future in wait(self.pending, timeout=_LOOK_S, return_when=FIRST_COMPLETED).done:
                worker, chain, work, watch = self.pending.pop(future)
                found = self._outcome(future, worker, chain, work, watch)
                failures += found
                for failure in found:
                    self.reporter.line(f"Failed: {failure}")
                self.free.append(worker)
            self._take_ready()
        return failures

    def _take_ready(self) -> None:
        ready = [chain for chain in self.waiting if chain.waits_for is None]
        if not ready and not self.pending and not self.ready:  # what they wait for has failed; they find out
            ready = list(self.waiting)
        for chain in ready:
            self.waiting.remove(chain)
            self.ready += [(chain, work) for work in ([chain.training] if chain.training else chain.measurings)]

    def _outcome(
        self, future: Future[list[Failure]], worker: _Worker, chain: Chain, work: Work, watch: Watch
    ) -> list[Failure]:
        try:
            failures = future.result()
        except (BrokenProcessPool, SystemExit, stopping.Stopped):
            worker.replace()
            if watch.timed_out:
                return watch.failures()
            if id(work) in self.given_again:
                return [Failure(name, _KILLED, EnvironmentProblem.kind) for name in work.unfinished]
            self.given_again.add(id(work))
            self.reporter.line(f"{work}: its process was ended by the system; it goes on in another one.")
            self.ready.appendleft((chain, work))
            return []
        if failures and watch.timed_out:  # what its code made of being asked to end
            return watch.failures()
        if not failures and work is chain.training:
            self.ready += [(chain, measuring) for measuring in chain.measurings]
        return failures


def start_worker(speaker: Connection, alive: Connection, threads: int, plugins: list[Path]) -> RemoteReporter:
    """Get this process ready to work for the one that started it.

    Args:
        speaker: Pipe for what it has to say.
        alive: Pipe whose other end the parent holds: when that is closed, or the parent gone, this process ends.
        threads: Its share of the cores.
        plugins: Files to load.
    """
    global _worker_reporter
    # Ctrl-C reaches the whole group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_stop_with_parent, args=(alive,), daemon=True).start()
    torch.set_num_threads(threads)
    for path in plugins:
        registry.load_plugin(path)
    _worker_reporter = RemoteReporter(speaker)
    sys.stdout = sys.stderr = Printed(_worker_reporter)
    return _worker_reporter


@contextmanager
def at_work() -> Iterator[None]:
    """Asked to end in this block, a worker has some seconds to write down where it stands."""
    global _busy
    _busy = True
    try:
        yield
    finally:
        _busy = False


def _stop_with_parent(alive: Connection) -> None:
    """The parent holds the other end: when it closes it, or is gone, this process keeps where it stands and ends."""
    alive.poll(None)
    stopping.request()
    _wait_until_idle()
    os.kill(os.getpid(), signal.SIGTERM)  # whatever is at it takes its time: it ends without
    _wait_until_idle()
    os._exit(1)


def _wait_until_idle() -> None:
    end_s = time.monotonic() + _GRACE_S / 2
    while _busy and time.monotonic() < end_s:
        time.sleep(0.05)


def _leave(*_: object) -> None:
    """Let the work under way write down where it stands; without any, be gone at once."""
    if not _busy:
        os._exit(1)
    sys.exit(1)


def _do(work: Work) -> list[Failure]:
    assert _worker_reporter is not None
    with at_work():
        return attempt(work, _worker_reporter, _worker_reporter.overall)
