"""Runs jobs in several worker processes, each with its share of the cores. They end with the parent, even if it is
killed.

Each worker does one job after the other. After a job with a plugin's method, a worker process is replaced before it
does the work of other methods, so that whatever the plugin did to its process cannot affect them.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from threading import Timer
from typing import Any, Generic

import torch

from adaptive_bench import registry, spawn, stopping
from adaptive_bench.errors import EnvironmentProblem, PluginFault
from adaptive_bench.jobs.job import Failure, Job, JobGroup, JobT, named_plugins, plugins_of, run_job
from adaptive_bench.jobs.overall_progress import OverallProgress
from adaptive_bench.jobs.watchdog import NO_LIMITS, Limits, Watch, watched
from adaptive_bench.jobs.worker import GRACE_S as _GRACE_S
from adaptive_bench.jobs.worker import ProgressQueue, run_in_worker, start_worker
from adaptive_bench.progress import JobFinished, Reporter

_LOOK_S = 1.0  # between two checks whether this process was asked to stop
_KILLED = (
    "its process ended twice{how}, most likely because memory ran out, unless the lines above say otherwise. Re-run "
    "the command: it continues from where it stopped; finished work is kept."
)
_PLUGIN_KILLED = (
    "its process ended twice{how} while {plugin} was at work. Either its code ends the process, or it needs more "
    "memory than there is. Correct the plugin, or give it a smaller --model; the work of others is done."
)


def in_parallel(
    groups: Sequence[JobGroup[JobT]], reporter: Reporter, workers: int, limits: Limits = NO_LIMITS
) -> list[Failure]:
    """Do groups of jobs in `workers` processes. Jobs that build on another job start when that one is done.

    Args:
        limits: Limits of each job.
    """
    context = spawn.context(runs_main=registry.needs_main())
    alive, keep_alive = context.Pipe(duplex=False)
    threads = max(1, torch.get_num_threads() // workers)
    with ProgressQueue(reporter) as queue:
        given = alive, threads, registry.plugin_files(), workers
        processes = [_Worker(context, queue, given) for _ in range(workers)]
        try:
            return _Schedule(groups, reporter, processes, limits).run()
        except BaseException:
            reporter.line(f"Stopping: each process saves its state, within {_GRACE_S:.0f} seconds.")
            keep_alive.close()
            raise
        finally:
            with _no_interrupts():  # a second Ctrl-C would not make this quicker, but could leave processes behind
                for worker in processes:
                    worker.close()


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Worker:
    """One worker process, in a pool of its own: if the system kills it, the others go on and its job is known."""

    def __init__(self, context: BaseContext, queue: ProgressQueue, arguments: tuple[Any, ...]) -> None:
        self.context, self.queue, self.arguments = context, queue, arguments
        self.process: BaseProcess | None = None
        self.watch: Watch | None = None
        self._start()

    def submit(self, job: Job) -> Future[list[Failure]]:
        if self.plugins and self.plugins != plugins_of(job):
            self.replace()
        with _no_interrupts():  # a process started here inherits the blocked signal
            try:
                return self._give(job)
            except BrokenProcessPool:  # the process was killed while it was idle
                self.replace()
                return self._give(job)

    def _give(self, job: Job) -> Future[list[Failure]]:
        self.plugins = plugins_of(job)
        future = self.pool.submit(run_in_worker, job)
        self.process = next(iter(self.pool._processes.values()), None)  # no public name for it before Python 3.14
        return future

    def replace(self) -> int | None:
        """Start another process in place of this one, and return the exit code of the old one."""
        code = self.close()
        self._start()
        return code

    def close(self) -> int | None:
        """Wait until the process ends, and return its exit code. A process that was asked to end but does not, because
        its code never returns to Python, is killed.
        """
        kill = (lambda: None) if self.process is None else self.process.kill
        end = Timer(_GRACE_S + _LOOK_S, kill)
        end.start()
        self.pool.shutdown(cancel_futures=True)  # the pool's thread collects the exit code, which can be read once
        end.cancel()
        self.sender.close()
        return None if self.process is None else self.process.exitcode

    def _start(self) -> None:
        self.process, self.plugins = None, set[str]()  # plugin methods that this process has run
        self.sender = self.queue.sender(self.context, lambda: None if self.watch is None else self.watch.moved())
        self.pool = ProcessPoolExecutor(1, self.context, start_worker, (self.sender, *self.arguments))


class _Schedule(Generic[JobT]):
    """Gives jobs to workers. A job whose process died is given out once more, and continues where it stopped."""

    def __init__(
        self, groups: Sequence[JobGroup[JobT]], reporter: Reporter, workers: Sequence[_Worker], limits: Limits
    ) -> None:
        self.limits = limits
        self.waiting, self.reporter, self.free = list(groups), reporter, list(workers)
        self.ready: deque[tuple[JobGroup[JobT], JobT]] = deque()
        self.pending: dict[Future[list[Failure]], tuple[_Worker, JobGroup[JobT], JobT, Watch]] = {}
        self.given_again: set[int] = set()

    def run(self) -> list[Failure]:
        """Do all jobs, and return what could not be done."""
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
        # If the rest waits for jobs that have failed, it is given out all the same, and reports that itself.
        if not ready and not self.pending and not self.ready:
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
            code = worker.replace()
            if not watch.timed_out and id(job) not in self.given_again:
                self.given_again.add(id(job))
                self.reporter.line(f"{job}: its process ended{_how(code)}; another one continues it.")
                self.ready.appendleft((group, job))
                return []
            self.reporter.emit(JobFinished(str(job.folder)))  # the dead process could not send this event
            if watch.timed_out:
                return watch.failures()
            plugin = named_plugins(job.methods, job.tasks)
            reason = (_KILLED if plugin is None else _PLUGIN_KILLED).format(how=_how(code), plugin=plugin)
            kind = EnvironmentProblem.kind if plugin is None else PluginFault.kind
            return [Failure(name, reason, kind) for name in job.unfinished]
        if failures and watch.timed_out:  # being asked to end made its code fail in some other way
            return watch.failures()
        if not failures and job is group.first:
            self.ready += [(group, other) for other in group.others]
        return failures


def _how(code: int | None) -> str:
    """Return in words how a process ended, as far as is known."""
    if code is None or code < 0:
        return "" if code is None else f" by the signal {signal.Signals(-code).name}"
    return f" with the exit code {code}"


def run_groups(groups: Sequence[JobGroup[JobT]], reporter: Reporter, workers: int, limits: Limits) -> list[Failure]:
    """Do groups of jobs, and return what could not be done. A failed job does not stop the rest; only the jobs that
    build on it are left out.

    Args:
        workers: Number of processes to use at once. With 1, jobs run in this process, unless there is a time limit or a
            job runs a plugin's method: then all jobs run in worker processes.
        limits: Limits of each job; a job over its time limit is ended from outside.
    """
    jobs = [job for group in groups for job in group.jobs]
    with OverallProgress(reporter, [job.estimate for job in jobs], workers) as overall:
        if workers == 1 and limits.timeout_s is None and not any(map(plugins_of, jobs)):
            return _one_after_the_other(groups, overall, limits)
        return in_parallel(groups, overall, workers, limits)


def _one_after_the_other(groups: Sequence[JobGroup[JobT]], reporter: Reporter, limits: Limits) -> list[Failure]:
    failures = []
    for group in groups:
        for job in group.jobs:
            with watched(job, limits, reporter) as noting:
                found = run_job(job, noting)
            failures += found
            for failure in found:
                reporter.line(f"Failed: {failure}")
            if found and job is group.first:
                break
    return failures
