"""Looks after work under way, from outside of it: says when a piece of it gets no further, and ends the process of one
that takes longer than it may.

From outside, because a loop in a method's code, or in a library's that never gives another thread a turn, cannot be
ended from within.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import CellTimeout, EnvironmentProblem, Superseded
from adaptive_bench.progress import Info, Meter, Reporter, duration
from adaptive_bench.runs.workers.chains import Failure, Training, Work
from adaptive_bench.store.attempts import alone
from adaptive_bench.store.records import Record

_LOOK_S = 1.0  # between two looks
_GRACE_S = 10.0  # between SIGTERM and SIGKILL
_START_S = 120.0  # a process has so long to say its first word before the time of its work begins


@dataclass(frozen=True)
class Limits:
    """What one piece of work, a training or the evaluations of one method on it, may take.

    Attributes:
        timeout_s: Then it is ended; `None`: never.
        silence_s: Without progress for so long it is said, and then each time after twice as long; `None`: never.
    """

    timeout_s: float | None = None
    silence_s: float | None = None

    @classmethod
    def of(cls, config: RunConfig) -> Self:
        """Those of a run."""
        timeout_min, silence_min = config.cell_timeout, config.stall_warning
        return cls(timeout_min and 60 * timeout_min, 60 * silence_min or None)


NO_LIMITS = Limits()


class Watch:
    """Over one piece of work.

    Args:
        process: Gives the process it is done in, if that is another one. Then its time runs from the first word of it.
    """

    def __init__(
        self,
        work: Work,
        limits: Limits,
        reporter: Reporter,
        process: Callable[[], BaseProcess | None] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.work, self.limits, self.reporter, self._now_s = work, limits, reporter, now_s
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
            self.reporter.line(f"{self.work}: no progress for {silent}. It goes on; --cell-timeout would end it.")

    def _end(self, process: BaseProcess, now_s: float, passed_s: float) -> None:
        if self._asked_s is None:
            self._asked_s = now_s
            self.reporter.line(f"{self.work}: ended after {duration(passed_s)}, its --cell-timeout.")
            process.terminate()
        elif now_s - self._asked_s >= _GRACE_S:
            process.kill()

    def failures(self) -> list[Failure]:
        """What becomes of work whose process was ended, with the record it was at marked as failed, and of what it had
        not come to. The process is gone.
        """
        assert self.limits.timeout_s is not None
        error = CellTimeout(
            f"{self.work} took more than {duration(self.limits.timeout_s)}, the --cell-timeout of one piece of work, "
            "and was ended. Correct a method that never comes to an end; give more time to one that does. The same "
            "command goes on from what was kept."
        )
        record, content, root = _unfinished(self.work)
        try:
            with alone(record.folder, str(self.work), self.reporter, root=root):
                record.begin(content)
                record.fail(error)
        except (EnvironmentProblem, Superseded) as problem:  # no reason to give up the work of others
            self.reporter.line(f"{self.work}: {problem}")
        log = record.folder / "log.txt"
        first, *others = self.work.unfinished or (str(self.work),)
        late = f"it was not begun: {error}"
        return [
            Failure(first, str(error), error.kind, log if log.is_file() else None),
            *(Failure(name, late, error.kind) for name in others),
        ]


@contextmanager
def watched(work: Work, limits: Limits, reporter: Reporter) -> Iterator[Reporter]:
    """A reporter for work in this process, over which a thread watches: it can say what it sees, and end nothing."""
    if limits.silence_s is None:
        yield reporter
        return
    watch, over = Watch(work, limits, reporter), threading.Event()

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


class _Noting:
    """A reporter that also notes when something gets further."""

    def __init__(self, reporter: Reporter, moved: Callable[[], None]) -> None:
        self.reporter, self.moved = reporter, moved

    def task(self, name: str, total: float) -> Meter:
        """See `Reporter`."""
        self.moved()
        return _NotingMeter(self.reporter.task(name, total), self.moved)

    def line(self, text: str) -> None:
        """See `Reporter`; talk is no progress."""
        self.reporter.line(text)


class _NotingMeter(Meter):
    def __init__(self, meter: Meter, moved: Callable[[], None]) -> None:
        self.meter, self.moved = meter, moved

    def advance(self, units: float = 1, **info: Info) -> None:
        self.moved()
        self.meter.advance(units, **info)

    def end(self) -> None:
        self.meter.end()


def _unfinished(work: Work) -> tuple[Record, Mapping[str, Any], Path | None]:
    """The record that work was at, what it is of, and where it may write."""
    if isinstance(work, Training):
        return work.cell.record, work.cell.content, None
    sweep = next((sweep for sweep in work.sweeps if sweep.finished() is None), work.sweeps[-1])
    return sweep.record, sweep.content, sweep.cell.folder
