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

LOOK_S = 1.0  # between two looks at a job
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


class Watch(Reporter):
    """Watches one job, and passes its events on.

    Args:
        process: The process that does the job, if it is not this one.
    """

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
