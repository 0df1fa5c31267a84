"""Work in several processes, each with its share of the cores. They end with the parent, even if it is killed.

A method of a plugin has a process of its own for each piece of its work, which ends with the piece, and all processes
that such methods start in it. No other work is done where a plugin's method has been loaded: whatever it changed there
is gone with it.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, Generic

import torch

from adaptive_bench import fork_server, registry, stopping
from adaptive_bench.errors import EnvironmentProblem, PluginFault
from adaptive_bench.jobs.failure import Failure
from adaptive_bench.jobs.job import Job, JobGroup, JobT, has_own_process
from adaptive_bench.jobs.plugins import named_plugins
from adaptive_bench.jobs.progress_queue import ProgressQueue
from adaptive_bench.jobs.watchdog import NO_LIMITS, Limits, Watch
from adaptive_bench.jobs.worker import GRACE_S, kill_group, run_in_worker, start_worker
from adaptive_bench.progress import JobFinished, Reporter

_GRACE_S = GRACE_S
_LOOK_S = 1.0  # between two looks whether the parent was asked to stop
_KILLED = (
    "its process was ended by the system twice, most likely because memory ran out. Re-run the command: it "
    "continues from where it stopped; finished work is kept."
)
_PLUGIN_KILLED = (
    "its process ended twice{how} while {plugin} was at work. Either its code ends the process, or it needs more "
    "memory than there is. Correct the plugin, or give it a smaller --model; the work of others is done."
)


def in_parallel(
    groups: Sequence[JobGroup[JobT]], reporter: Reporter, workers: int, limits: Limits = NO_LIMITS
) -> list[Failure]:
    """Do groups of jobs in `workers` processes. What builds on a job starts when that is done.

    Args:
        limits: Of each job.
    """
    context = fork_server.context(runs_main=registry.needs_main())  # they share what is loaded, and start at once
    alive, keep_alive = context.Pipe(duplex=False)
    threads = max(1, torch.get_num_threads() // workers)
    grace_s = 0.0
    with ProgressQueue(reporter) as queue:
        given = alive, threads, registry.plugin_files(()), workers
        processes = [_Worker(context, queue, given) for _ in range(workers)]
        try:
            return _Schedule(groups, reporter, processes, limits).run()
        except BaseException:
            reporter.line(f"Stopping: each process keeps where it stands, in at most {_GRACE_S:.0f} seconds.")
            keep_alive.close()
            grace_s = _GRACE_S + _LOOK_S
            raise
        finally:
            with _no_interrupts():  # a second Ctrl-C could not make it quicker, only leave something behind
                for worker in processes:
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

    def __init__(self, context: BaseContext, queue: ProgressQueue, arguments: tuple[Any, ...]) -> None:
        self.context, self.queue, self.arguments = context, queue, arguments
        self.process: BaseProcess | None = None
        self.watch: Watch | None = None
        self.is_for_one = False  # of a plugin, which may have done anything to it
        self._start()

    def ending(self) -> str:
        """How its process ended, as far as is known.

        Raises:
            UsageError: It ran the program's main file again, and that begins a run whoever runs it.
        """
        # The thread of a pool that broke is about to end. It takes the exit code from a pipe, which says it once:
        # whoever asked beside it would be told 255.
        if self.process is not None and wait_for([self.process.sentinel], 0):
            self.pool.shutdown(wait=True)
        fork_server.check_guarded(self.process)
        code = None if self.process is None else self.process.exitcode
        if code is None or code < 0:
            return "" if code is None else f" by the signal {signal.Signals(-code).name}"
        return f" with the exit code {code}"

    def submit(self, job: Job) -> Future[list[Failure]]:
        if self.is_for_one or (has_own_process(job) and self.process is not None):
            self.replace()
        self.is_for_one = has_own_process(job)
        with _no_interrupts():  # a process that is started here begins with what holds here
            try:
                return self._give(job)
            except BrokenProcessPool:  # it was ended while it had nothing to do
                self.replace()
                return self._give(job)

    def _give(self, job: Job) -> Future[list[Failure]]:
        plugin = named_plugins(job.methods, job.tasks) if has_own_process(job) else None
        files = registry.plugin_files(job.methods) if plugin else ()
        every = registry.plugin_files()
        future = self.pool.submit(run_in_worker, job, fork_server.Surroundings.here(), plugin, files, every)
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
        self.sender.close()

    def _start(self) -> None:
        self.process, self.is_for_one = None, False
        self.sender = self.queue.sender(self.context, self._moved)
        self.pool = ProcessPoolExecutor(1, self.context, start_worker, (self.sender, *self.arguments))


class _Schedule(Generic[JobT]):
    """Gives jobs to workers. A job whose process the system ended is given once more: it continues from there."""

    def __init__(
        self,
        groups: Sequence[JobGroup[JobT]],
        reporter: Reporter,
        workers: Sequence[_Worker],
        limits: Limits = NO_LIMITS,
    ) -> None:
        self.limits = limits
        self.waiting, self.reporter, self.free = list(groups), reporter, list(workers)
        self.ready: deque[tuple[JobGroup[JobT], JobT]] = deque()
        self.pending: dict[Future[list[Failure]], tuple[_Worker, JobGroup[JobT], JobT, Watch]] = {}
        self.given_again: set[int] = set()

    def run(self) -> list[Failure]:
        """Everything; gives back what could not be done."""
        failures: list[Failure] = []
        self._take_ready()
        while self.ready or self.pending:
            while self.ready and self.free:
                worker, (group, job) = self.free.pop(), self.ready.popleft()
                worker.watch = watch = Watch(job, self.limits, self.reporter, partial(getattr, worker, "process"))
                self.pending[worker.submit(job)] = (worker, group, job, watch)
            stopping.check()
            for *_, watch in self.pending.values():
                watch.look()
            for future in wait(self.pending, timeout=_LOOK_S, return_when=FIRST_COMPLETED).done:
                worker, group, job, watch = self.pending.pop(future)
                found = self._outcome(future, worker, group, job, watch)
                failures += found
                for failure in found:
                    self.reporter.line(f"Failed: {failure}")
                self.free.append(worker)
            self._take_ready()
        return failures

    def _take_ready(self) -> None:
        ready = [group for group in self.waiting if group.is_ready]
        if not ready and not self.pending and not self.ready:  # what they wait for has failed; they find out
            ready = list(self.waiting)
        for group in ready:
            self.waiting.remove(group)
            self.ready += [(group, job) for job in ([group.first] if group.first else group.others)]

    def _outcome(
        self, future: Future[list[Failure]], worker: _Worker, group: JobGroup[JobT], job: JobT, watch: Watch
    ) -> list[Failure]:
        try:
            failures = future.result()
        except (BrokenProcessPool, SystemExit, stopping.Stopped):
            how = worker.ending()
            worker.replace()
            if not watch.timed_out and id(job) not in self.given_again:
                self.given_again.add(id(job))
                self.reporter.line(f"{job}: its process was ended by the system; another one continues it.")
                self.ready.appendleft((group, job))
                return []
            self.reporter.emit(JobFinished(str(job.folder)))  # its process could not say so
            return watch.failures() if watch.timed_out else _killed(job, how)
        if worker.is_for_one:
            worker.replace()
        if failures and watch.timed_out:  # what its code made of being asked to end
            return watch.failures()
        if not failures and job is group.first:
            self.ready += [(group, other) for other in group.others]
        return failures


def _killed(job: Job, how: str) -> list[Failure]:
    """What a job that was ended twice has not done."""
    plugin = named_plugins(job.methods, job.tasks) if has_own_process(job) else None
    reason = _KILLED if plugin is None else _PLUGIN_KILLED.format(how=how, plugin=plugin)
    kind = EnvironmentProblem.kind if plugin is None else PluginFault.kind
    return [Failure(name, reason, kind) for name in job.unfinished]
