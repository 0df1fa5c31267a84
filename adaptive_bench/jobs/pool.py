"""Runs jobs one after the other in this process, or in several worker processes, each with its share of the cores.

Jobs are watched from outside: an endless loop in the code of a method, or of a library that never lets another thread
run, cannot be ended from within its process. After a job with a plugin's method, a worker process is replaced before it
does the work of other methods, so that whatever the plugin did to its process cannot affect them.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from adaptive_bench import registry, stopping
from adaptive_bench.errors import CellTimeout, EnvironmentProblem, PluginFault
from adaptive_bench.jobs.job import Failure, Job, named_plugins, plugins_of, run_job
from adaptive_bench.jobs.worker import GRACE_S, spawn_context, work
from adaptive_bench.progress import (
    Event,
    JobFinished,
    Line,
    Reporter,
    RunningTask,
    TaskFinished,
    TaskStarted,
    UnitDone,
    duration,
)

LOOK_S = 1.0  # between two looks at a job
_START_S = 120.0  # the time of a job runs from its process's first event, but begins after this long at the latest
_AT_ONCE = 1000  # events of one process that are passed on before the others are looked at
_KILLED = (
    "its process ended twice{how}, most likely because memory ran out, unless the lines above say otherwise. Re-run "
    "the command: it continues from where it stopped; finished work is kept."
)
_PLUGIN_KILLED = (
    "its process ended twice{how} while {plugin} was at work. Either its code ends the process, or it needs more "
    "memory than there is. Correct the plugin, or give it a smaller --model; the work of others is done."
)


@dataclass(frozen=True)
class Limits:
    """How long one job may take; `None` is without end."""

    timeout_s: float | None = None  # after which it is ended
    silence_s: float | None = None  # without progress, after which this is reported, and each time after twice as long


def run_jobs(jobs: Sequence[Job], reporter: Reporter, workers: int, limits: Limits) -> list[Failure]:
    """Do jobs, and return what could not be done. A failed job does not stop the rest; only the jobs that build on it
    are left out.

    Args:
        jobs: Each comes after those that it builds on.
        workers: Number of processes to use at once. With 1, jobs run in this process, unless there is a time limit or a
            job runs a plugin's method: then all jobs run in worker processes.
        limits: Limits of each job; a job over its time limit is ended from outside.
    """
    with reporter.task("run", float(sum(job.seconds for job in jobs))) as bar:
        overall = OverallProgress(reporter, bar, jobs)
        if workers == 1 and limits.timeout_s is None and not any(map(plugins_of, jobs)):
            return _one_after_the_other(jobs, overall, limits)
        return _in_parallel(jobs, overall, workers, limits)


class OverallProgress(Reporter):
    """Passes events on, and moves one bar of all jobs: by the seconds that each finished unit was expected to take."""

    def __init__(self, reporter: Reporter, bar: RunningTask, jobs: Sequence[Job]) -> None:
        self.reporter, self.bar = reporter, bar
        self.left_s = {str(job.folder): job.seconds for job in jobs}
        self._units = {unit: (str(job.folder), seconds) for job in jobs for unit, seconds in job.unit_s.items()}

    def emit(self, event: Event) -> None:
        """See `Reporter`."""
        self.reporter.emit(event)
        match event:
            case UnitDone() if event in self._units:
                self._move(*self._units[event])
            # Whatever is left of the estimate counts as done, whether the job was fast or failed.
            case JobFinished(job) if job in self.left_s:
                self._move(job, math.inf)

    def _move(self, job: str, seconds: float) -> None:
        done_s = min(seconds, self.left_s[job])
        self.left_s[job] -= done_s
        self.bar.advance(done_s)


class Watch(Reporter):
    """Watches one job, which is done by a process if not by this one, and passes its events on."""

    def __init__(
        self,
        job: Job,
        limits: Limits,
        reporter: Reporter,
        process: BaseProcess | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job, self.limits, self.reporter, self.process, self._now_s = job, limits, reporter, process, now_s
        self._moved_s = now_s()
        # Loading libraries and plugins does not count, but a process that never gets further must end as well.
        self._begun_s = self._moved_s if process is None else self._moved_s + _START_S
        self._silence_s = limits.silence_s
        self._asked_s: float | None = None

    @property
    def timed_out(self) -> bool:
        """Whether the job's process was asked to end because its time was over."""
        return self._asked_s is not None

    def emit(self, event: Event) -> None:
        """Pass an event on. It is progress, unless it is a mere line of text."""
        now_s = self._now_s()
        self._begun_s = min(self._begun_s, now_s)
        if not isinstance(event, Line):
            self._moved_s, self._silence_s = now_s, self.limits.silence_s
        self.reporter.emit(event)

    def look(self) -> None:
        """Report if there is no progress, and end the process if its time is over."""
        now_s = self._now_s()
        passed_s = now_s - self._begun_s
        if self.process is not None and self.limits.timeout_s is not None and passed_s >= self.limits.timeout_s:
            self._end(self.process, now_s, passed_s)
        elif self._silence_s is not None and now_s - self._moved_s >= self._silence_s:
            self._silence_s *= 2
            silent = duration(now_s - self._moved_s)
            self.reporter.line(f"{self.job}: no progress for {silent}. It keeps running; --cell-timeout would end it.")

    def _end(self, process: BaseProcess, now_s: float, passed_s: float) -> None:
        if self._asked_s is None:
            self._asked_s = now_s
            self.reporter.line(f"{self.job}: ended after {duration(passed_s)}, its --cell-timeout.")
            process.terminate()
        elif now_s - self._asked_s >= GRACE_S:
            process.kill()

    def failures(self) -> list[Failure]:
        """Return what a job whose process was ended has not done, and mark the record it was working on as failed."""
        assert self.limits.timeout_s is not None
        error = CellTimeout(
            f"{self.job} took more than {duration(self.limits.timeout_s)}, the --cell-timeout of one job, and was "
            "ended. Correct a method that never comes to an end; give more time to one that does. Re-run the command: "
            "it continues from what was kept."
        )
        log = self.job.mark_failed(error, self.reporter)
        # None is left if it was ended right after its last result was written.
        first, *others = self.job.unfinished or (str(self.job),)
        late = f"it was not begun: {error}"
        return [Failure(first, str(error), error.kind, log), *(Failure(name, late, error.kind) for name in others)]


@contextmanager
def watched(job: Job, limits: Limits, reporter: Reporter) -> Iterator[Reporter]:
    """Give a reporter for a job in this process, watched by a thread, which can report a lack of progress but cannot
    end the job.
    """
    watch, over = Watch(job, limits, reporter), threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            watch.look()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()


def _one_after_the_other(jobs: Sequence[Job], reporter: Reporter, limits: Limits) -> list[Failure]:
    failures = []
    for job in jobs:
        with watched(job, limits, reporter) as watch:
            found = run_job(job, watch)
        failures += found
        for failure in found:
            reporter.line(f"Failed: {failure}")
    return failures


def _in_parallel(jobs: Sequence[Job], reporter: Reporter, workers: int, limits: Limits) -> list[Failure]:
    context = spawn_context()
    given = max(1, torch.get_num_threads() // workers), registry.plugin_files(), workers
    processes = [Worker(context, given) for _ in range(workers)]
    try:
        return Schedule(jobs, reporter, processes, limits).run()
    except BaseException:
        reporter.line(f"Stopping: each process saves its state, within {GRACE_S:.0f} seconds.")
        raise
    finally:
        for worker in processes:
            worker.pipe.close()  # all of them begin to stop
        try:
            for worker in processes:
                worker.close()
        finally:  # also after a second Ctrl-C
            for worker in processes:
                worker.process.kill()


class Worker:
    """A worker process, with a pipe of its own: jobs go in, events and results come out. It ends when the pipe is
    closed, so also when this process is gone.
    """

    process: SpawnProcess
    pipe: Connection
    plugins: set[str]  # plugin methods that the process has run
    watch: Watch  # over the job it does

    def __init__(self, context: SpawnContext, arguments: tuple[Any, ...]) -> None:
        self.context, self.arguments = context, arguments
        self._start()

    def give(self, job: Job, limits: Limits, reporter: Reporter) -> None:
        """Have the process do a job."""
        if not self.process.is_alive() or (self.plugins and self.plugins != plugins_of(job)):
            self.replace()
        self.plugins, self.watch = plugins_of(job), Watch(job, limits, reporter, self.process)
        with suppress(OSError):  # the process has just ended, as `hear` will find
            self.pipe.send(job)

    def hear(self) -> list[Failure] | None:
        """Pass on what the process has sent by now; return what failed in the job, and `None` as long as it goes on.

        Raises:
            EOFError: The process has ended.
        """
        for _ in range(_AT_ONCE):
            try:
                if not self.pipe.poll():
                    break
                said = self.pipe.recv()
            except OSError as error:
                raise EOFError from error
            # The result is the only thing that is no event, and the last that a job sends.
            if not isinstance(said, Event):
                return list(said)
            if isinstance(said, TaskStarted):
                self._open[said.task] = None
            if isinstance(said, TaskFinished):
                self._open.pop(said.task, None)
            self.watch.emit(said)
        if not self.process.is_alive() and not self.pipe.poll():
            raise EOFError  # whatever it has started may still hold the pipe
        return None

    def replace(self) -> int | None:
        """Start another process in place of this one, and return the exit code of the old one."""
        code = self.close()
        self._start()
        return code

    def close(self) -> int | None:
        """End the process, and return its exit code. One that does not end when it is asked to, because its code never
        returns to Python, is killed.
        """
        self.pipe.close()
        self.process.join(GRACE_S + LOOK_S)
        self.process.kill()
        self.process.join()
        # The process can no longer end the tasks that it began, and a display would show them for good.
        for task in self._open:
            self.watch.emit(TaskFinished(task))
        return self.process.exitcode

    def _start(self) -> None:
        self._open: dict[str, None] = {}  # tasks that are shown
        self.plugins = set()
        self.pipe, other = self.context.Pipe()
        self.process = self.context.Process(target=work, args=(other, *self.arguments))
        # Ctrl-C reaches the whole process group, but this process decides what to do: the new one inherits the block.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        other.close()  # this copy would keep the pipe open after the process has ended


class Schedule:
    """Gives jobs to workers. Jobs that build on another job start when that one is done. A job whose process died is
    given out once more, and continues where it stopped.
    """

    def __init__(self, jobs: Sequence[Job], reporter: Reporter, workers: Sequence[Worker], limits: Limits) -> None:
        self.limits = limits
        self.waiting, self.reporter, self.free = list(jobs), reporter, list(workers)
        self.ready: deque[Job] = deque()
        self.busy: dict[Worker, Job] = {}
        self.given_again: set[int] = set()  # by `id`, since a job holds a dict and so has no hash

    def run(self) -> list[Failure]:
        """Do all jobs, and return what could not be done."""
        failures: list[Failure] = []
        self._take_ready()
        while self.ready or self.busy:
            while self.ready and self.free:
                worker, job = self.free.pop(), self.ready.popleft()
                worker.give(job, self.limits, self.reporter)
                self.busy[worker] = job
            stopping.check()
            # Until a process says something or ends, at the latest until it is time to look at limits.
            wait([one for worker in self.busy for one in (worker.pipe, worker.process.sentinel)], LOOK_S)
            for worker, job in list(self.busy.items()):
                found = self._outcome(worker, job)
                if found is None:
                    continue
                failures += found
                for failure in found:
                    self.reporter.line(f"Failed: {failure}")
                del self.busy[worker]
                self.free.append(worker)
                self._take_ready()
        return failures

    def _take_ready(self) -> None:
        """Move what can begin from `waiting` to `ready`. Called only when a job is over, because it reads records."""
        waiting, self.waiting = self.waiting, []
        for job in waiting:
            (self.ready if job.is_ready else self.waiting).append(job)
        # If the rest waits for jobs that have failed, it is given out all the same, and reports that itself.
        if not self.busy and not self.ready:
            self.ready, self.waiting = deque(self.waiting), []

    def _outcome(self, worker: Worker, job: Job) -> list[Failure] | None:
        """Return what failed in a job that is over; `None` while it goes on."""
        watch = worker.watch
        try:
            failures = worker.hear()
        except EOFError:
            how = _how(worker.replace())
            if not watch.timed_out and id(job) not in self.given_again:
                self.given_again.add(id(job))
                self.reporter.line(f"{job}: its process ended{how}; another one continues it.")
                self.ready.appendleft(job)
                return []  # nothing failed yet, and the worker is free to go on with it
            self.reporter.emit(JobFinished(str(job.folder)))  # the dead process could not send this event
            if watch.timed_out:
                return watch.failures()
            plugin = named_plugins(job.methods, job.tasks)
            reason = (_KILLED if plugin is None else _PLUGIN_KILLED).format(how=how, plugin=plugin)
            kind = EnvironmentProblem.kind if plugin is None else PluginFault.kind
            return [Failure(name, reason, kind) for name in job.unfinished]
        if failures is None:
            watch.look()
        elif failures and watch.timed_out:  # being asked to end made its code fail in some other way
            return watch.failures()
        return failures


def _how(code: int | None) -> str:
    """Return in words how a process ended, as far as is known."""
    if code is None:
        return ""
    return f" by the signal {signal.Signals(-code).name}" if code < 0 else f" with the exit code {code}"
