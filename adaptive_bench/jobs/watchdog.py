"""Looks after jobs under way, from outside of them: says when one gets no further, and ends the process of one that
takes longer than it may.

From outside, because a loop in a method's code, or in a library's that never gives another thread a turn, cannot be
ended from within.
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

_LOOK_S = 1.0  # between two looks
_GRACE_S = 10.0  # between SIGTERM and SIGKILL
_START_S = 120.0  # a process has so long to say its first word before the time of its work begins


@dataclass(frozen=True)
class Limits:
    """What one job may take.

    Attributes:
        timeout_s: Then it is ended; `None`: never.
        silence_s: Without progress for so long it is said, and then each time after twice as long; `None`: never.
    """

    timeout_s: float | None = None
    silence_s: float | None = None


NO_LIMITS = Limits()


class Watch:
    """Over one job.

    Args:
        process: Gives the process it is done in, if that is another one. Then its time runs from the first word of it.
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
        """Whether its process was asked to end."""
        return self._asked_s is not None

    def moved(self) -> None:
        """It has got further."""
        self._moved_s, self._silence_s = self._now_s(), self.limits.silence_s
        if self._begun_s is None:
            self._begun_s = self._moved_s

    def look(self) -> None:
        """Say that there is no progress, if so, and end the process if its time is over."""
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
        """What a job whose process was ended has not done; the record it was working on is marked as failed."""
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
    """A reporter for work in this process, over which a thread watches: it can say what it sees, and end nothing."""
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
    """A reporter that also notes when something gets further; talk is no progress."""

    def __init__(self, reporter: Reporter, moved: Callable[[], None]) -> None:
        self._reporter, self._moved = reporter, moved

    def emit(self, event: Event) -> None:
        """See `Reporter`."""
        if not isinstance(event, Line):
            self._moved()
        self._reporter.emit(event)
