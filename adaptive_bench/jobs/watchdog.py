"""Watches running jobs from outside: reports a job that makes no progress, and ends the process of one that takes
longer than it may.

This is done from outside because an endless loop in the code of a method, or of a library that never lets another
thread run, cannot be ended from within its process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

from adaptive_bench.errors import CellTimeout
from adaptive_bench.jobs.job import Failure, Job
from adaptive_bench.progress import Event, Line, Reporter, duration

_LOOK_S = 1.0  # between two looks at a job
_GRACE_S = 10.0  # between SIGTERM and SIGKILL
_START_S = 120.0  # the time of a job runs from its process's first event, but begins after this long at the latest


@dataclass(frozen=True)
class Limits:
    """How long one job may take.

    Attributes:
        timeout_s: Seconds after which a job is ended; `None`: never.
        silence_s: Seconds without progress after which this is reported, and again each time after twice as long;
            `None`: never.
    """

    timeout_s: float | None = None
    silence_s: float | None = None


NO_LIMITS = Limits()


class Watch:
    """Watches one job.

    Args:
        process: Gives the process that does the job, if it is not this one. The job's time then runs from the first
            event of that process.
    """

    def __init__(
        self,
        job: Job,
        limits: Limits,
        reporter: Reporter,
        process: Callable[[], BaseProcess | None] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job, self.limits, self.reporter, self._now_s = job, limits, reporter, now_s
        self._process = process
        self._given_s = self._moved_s = now_s()
        self._begun_s: float | None = None if process else self._given_s
        self._silence_s = limits.silence_s
        self._asked_s: float | None = None

    @property
    def timed_out(self) -> bool:
        """Whether the job's process was asked to end because its time was over."""
        return self._asked_s is not None

    def moved(self) -> None:
        """Note that the job has made progress."""
        self._moved_s, self._silence_s = self._now_s(), self.limits.silence_s
        if self._begun_s is None:
            self._begun_s = self._moved_s

    def look(self) -> None:
        """Report if there is no progress, and end the process if its time is over."""
        now_s = self._now_s()
        if self._begun_s is None and now_s - self._given_s >= _START_S:
            self._begun_s = now_s
        passed_s = 0.0 if self._begun_s is None else now_s - self._begun_s
        is_over = self.limits.timeout_s is not None and passed_s >= self.limits.timeout_s
        if is_over and self._process is not None and (process := self._process()) is not None:
            self._end(process, now_s, passed_s)
        elif self._silence_s is not None and now_s - self._moved_s >= self._silence_s:
            self._silence_s *= 2
            silent = duration(now_s - self._moved_s)
            self.reporter.line(f"{self.job}: no progress for {silent}. It keeps running; --cell-timeout would end it.")

    def _end(self, process: BaseProcess, now_s: float, passed_s: float) -> None:
        if self._asked_s is None:
            self._asked_s = now_s
            self.reporter.line(f"{self.job}: ended after {duration(passed_s)}, its --cell-timeout.")
            process.terminate()
        elif now_s - self._asked_s >= _GRACE_S:
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
        first, *others = self.job.unfinished or (str(self.job),)
        late = f"it was not begun: {error}"
        return [Failure(first, str(error), error.kind, log), *(Failure(name, late, error.kind) for name in others)]


@contextmanager
def watched(job: Job, limits: Limits, reporter: Reporter) -> Iterator[Reporter]:
    """Give a reporter for a job in this process, watched by a thread, which can report a lack of progress but cannot
    end the job.
    """
    if limits.silence_s is None:
        yield reporter
        return
    watch, over = Watch(job, limits, reporter), threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_S):
            watch.look()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield _Noting(reporter, watch.moved)
    finally:
        over.set()
        thread.join()


class _Noting(Reporter):
    """A reporter that also notes progress; a mere line of text is no progress."""

    def __init__(self, reporter: Reporter, moved: Callable[[], None]) -> None:
        self._reporter, self._moved = reporter, moved

    def emit(self, event: Event) -> None:
        """See `Reporter`."""
        if not isinstance(event, Line):
            self._moved()
        self._reporter.emit(event)
