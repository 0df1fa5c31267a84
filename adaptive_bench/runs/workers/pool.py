"""Work in several processes, each with its share of the cores. They end with the parent, even if it is killed.

A method of a plugin has a process of its own for each piece of its work, which ends with the piece, and all processes
that such methods start in it. No other work is done where a plugin's method has been loaded: whatever it changed there
is gone with it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from adaptive_bench import closure, fork_server, registry, stopping
from adaptive_bench.errors import EnvironmentProblem, PluginFault
from adaptive_bench.progress import Meter, Reporter
from adaptive_bench.runs.workers.chains import Chain, Failure, Training, Work, attempt, named_plugins, stands_apart
from adaptive_bench.runs.workers.others_records import protect
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
_PLUGIN_KILLED = (
    "its process ended twice{how} while {plugin} was at work. Either its code ends the process, or it needs more "
    "memory than there is. Correct the plugin, or give it a smaller --model; the work of others is done."
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
    # Forked from a process that has never seen a plugin they start at once; without plugins a few that last will do.
    apart = any(stands_apart(work) for chain in chains for work in chain.works)
    context = fork_server.context() if apart else multiprocessing.get_context("spawn")
    alive, keep_alive = context.Pipe(duplex=False)
    threads = max(1, torch.get_num_threads() // jobs)
    grace_s = 0.0
    with Relay(reporter, overall) as relay:
        workers = [_Worker(context, relay, (alive, threads, registry.plugin_files(()))) for _ in range(jobs)]
        try:
            return _Schedule(chains, reporter, workers, limits).run()
        except BaseException:
            reporter.line(f"Stopping: each process keeps where it stands, in at most {_GRACE_S:.0f} seconds.")
            keep_alive.close()
            grace_s = _GRACE_S + _LOOK_S
            raise
        finally:
            with _no_interrupts():  # a second Ctrl-C could not make it quicker, only leave something behind
                for worker in workers:
                    worker.close(grace_s)


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

    def __init__(self, context: BaseContext, relay: Relay, arguments: tuple[Any, ...]) -> None:
        self.context, self.relay, self.arguments = context, relay, arguments
        self.process: BaseProcess | None = None
        self.watch: Watch | None = None
        self.is_for_one = False  # of a plugin, which may have done anything to it
        self._start()

    @property
    def ending(self) -> str:
        """How its process ended, as far as is known."""
        code = None if self.process is None else self.process.exitcode
        if code is None or code < 0:
            return "" if code is None else f" by the signal {signal.Signals(-code).name}"
        return f" with the exit code {code}"

    def submit(self, work: Work) -> Future[list[Failure]]:
        if self.is_for_one or (stands_apart(work) and self.process is not None):
            self.replace()
        self.is_for_one = stands_apart(work)
        with _no_interrupts():  # a process that is started here begins with what holds here
            try:
                return self._give(work)
            except BrokenProcessPool:  # it was ended while it had nothing to do
                self.replace()
                return self._give(work)

    def _give(self, work: Work) -> Future[list[Failure]]:
        plugin = named_plugins(work.methods) if stands_apart(work) else None
        files = registry.plugin_files(work.methods) if plugin else ()
        every = registry.plugin_files()
        future = self.pool.submit(_do, work, fork_server.Surroundings.here(), plugin, files, every)
        self.process = next(iter(self.pool._processes.values()), None)  # nobody else names it before Python 3.14
        return future

    def _moved(self) -> None:
        if self.watch is not None:
            self.watch.moved()

    def replace(self) -> None:
        """Another process in place of one that is gone."""
        self.close()
        self._start()

    def close(self, grace_s: float = 0.0) -> None:
        """Wait for its end. One that was asked to end and cannot, because its code never comes up for air, is ended,
        and one that a plugin's method was in with all that it has started.

        Args:
            grace_s: How long one with a plugin's method in it has.
        """
        self.pool.shutdown(wait=False, cancel_futures=True)
        if self.process is not None:
            gone = wait_for([self.process.sentinel], grace_s if self.is_for_one else _GRACE_S + _LOOK_S)
            if self.is_for_one:
                kill_group(self.process)
            elif not gone:
                self.process.kill()
        self.pool.shutdown(wait=True)
        self.speaker.close()

    def _start(self) -> None:
        self.process, self.is_for_one = None, False
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
            plugin, how = named_plugins(work.methods), worker.ending
            worker.replace()
            if watch.timed_out:
                return watch.failures()
            if id(work) in self.given_again and plugin is not None:
                reason = _PLUGIN_KILLED.format(how=how, plugin=plugin)
                return [Failure(name, reason, PluginFault.kind) for name in work.unfinished]
            if id(work) in self.given_again:
                return [Failure(name, _KILLED, EnvironmentProblem.kind) for name in work.unfinished]
            self.given_again.add(id(work))
            self.reporter.line(f"{work}: its process was ended by the system; it goes on in another one.")
            self.ready.appendleft((chain, work))
            return []
        if worker.is_for_one:
            worker.replace()
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
    if os.getpgid(0) == os.getpid():  # with a plugin in it: all that it has started ends too
        os.killpg(0, signal.SIGKILL)
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


def lead_group() -> None:
    """Make this process one that a plugin's method may be in: what it starts can be ended with it, and where memory
    runs out the system ends it before others.
    """
    os.setpgid(0, 0)
    with suppress(OSError):  # no Linux, or not allowed
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def kill_group(process: BaseProcess) -> None:
    """End such a process, and all that was started in it."""
    if process.pid is not None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.is_alive():  # it has not come to `lead_group`
        process.kill()


def _do(
    work: Work,
    surroundings: fork_server.Surroundings,
    plugin: str | None,
    files: Sequence[Path],
    every: Sequence[Path],
) -> list[Failure]:
    assert _worker_reporter is not None
    closure.take_in(every)
    surroundings.adopt()
    if plugin is not None:
        lead_group()
        sweeps = [] if isinstance(work, Training) else [sweep.folder for sweep in work.sweeps]
        cell = work.cell if isinstance(work, Training) else work.sweeps[0].cell
        protect(cell.folder.parent, cell.folder, sweeps, plugin)
    with at_work():
        return attempt(work, _worker_reporter, _worker_reporter.overall, files)
