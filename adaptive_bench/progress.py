"""Reports progress as typed events, and prints them as plain lines; `live_display` shows them on a terminal.

    with reporter.task("train gateskip, seed 1", total=150) as task:
        for step in range(150):
            task.advance(1, loss=loss)
    reporter.line("batch halved to 16: out of memory")

Everything that a reporter is told is an event. Worker processes forward events unchanged, and no code parses a label.
"""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TextIO
from uuid import uuid4

Info = float | int | str


@dataclass(frozen=True)
class Event:
    """Something that happened; it can be pickled."""


@dataclass(frozen=True)
class Line(Event):
    """A sentence for the user, said once."""

    text: str


@dataclass(frozen=True)
class TaskStarted(Event):
    """A task with a known number of units begins.

    Attributes:
        task: Id of the task in the events that follow.
        total: Number of units; a `float` means seconds, whose share that is done is shown.
        done: Units that were done before, by an earlier process.
    """

    task: str
    label: str
    total: float
    done: float = 0


@dataclass(frozen=True)
class TaskAdvanced(Event):
    """Units of a task were done.

    Attributes:
        info: Values to show beside the progress, for example `{"loss": 0.31}`.
        left_s: Seconds that the task still takes, if that is known better than from its speed.
    """

    task: str
    units: float = 1
    info: Mapping[str, Info] = field(default_factory=dict)
    left_s: float | None = None


@dataclass(frozen=True)
class TaskFinished(Event):
    """A task is over, or was given up."""

    task: str


@dataclass(frozen=True)
class UnitDone(Event):
    """A unit of a record's work was done.

    Attributes:
        record: Folder of the record.
    """

    record: str


class TrainingStep(UnitDone):
    """An optimizer step was done."""


class DialCalibrated(UnitDone):
    """A dial value was made ready for an evaluation."""


class PointMeasured(UnitDone):
    """An evaluation at one dial value was done."""


@dataclass(frozen=True)
class JobStarted(Event):
    """A job begins."""

    job: str


@dataclass(frozen=True)
class JobFinished(Event):
    """A job is over, done or failed."""

    job: str


class Reporter(ABC):
    """Takes the events by which training, evaluation and the runner report progress."""

    @abstractmethod
    def emit(self, event: Event) -> None:
        """Take an event: show it, keep it or pass it on."""

    def line(self, text: str) -> None:
        """Tell the user a sentence, once."""
        self.emit(Line(text))

    def task(self, label: str, total: float, done: float = 0) -> RunningTask:
        """Start a task; see `TaskStarted`."""
        return RunningTask(self, label, total, done)


class RunningTask:
    """A task of a reporter. It starts when it is created, and ends when its `with` block ends."""

    def __init__(self, reporter: Reporter, label: str, total: float, done: float = 0) -> None:
        self._reporter, self._task = reporter, uuid4().hex
        reporter.emit(TaskStarted(self._task, label, total, done))

    def advance(self, units: float = 1, *, left_s: float | None = None, **info: Info) -> None:
        """Count finished units; see `TaskAdvanced`."""
        self._reporter.emit(TaskAdvanced(self._task, units, info, left_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reporter.emit(TaskFinished(self._task))


class SilentReporter(Reporter):
    """Shows nothing, for library use and tests."""

    def emit(self, event: Event) -> None:
        """Ignore the event."""


class EtaEstimator:
    """Estimates the seconds that a task still takes, from its speed since the first units were done. What came before
    these units, such as the start of processes, happens only once and is left out.
    """

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None
        self._last = (0.0, 0.0)
        self._told: tuple[float, float] | None = None

    def note(self, now_s: float, done: float, left_s: float | None = None) -> None:
        """Note how much is done by now, and `left_s` if it is known how long the rest takes."""
        self._first = self._first or (now_s, done)
        self._last = (now_s, done)
        if left_s is not None:
            self._told = (now_s, left_s)

    def left_s(self, now_s: float, total: float) -> float | None:
        """Return the seconds that are left, counting down between two notes; `None` while there is no estimate."""
        if self._told is not None:
            return max(0.0, self._told[1] - (now_s - self._told[0]))
        if self._first is None or self._last[1] <= self._first[1]:
            return None
        unit_s = (self._last[0] - self._first[0]) / (self._last[1] - self._first[1])
        return max(0.0, unit_s * (total - self._last[1]) - (now_s - self._last[0]))


class ShownTask:
    """The state of a task that a reporter shows."""

    def __init__(self, started: TaskStarted) -> None:
        self.label, self.total, self.done = started.label, started.total, started.done
        self.eta, self.info = EtaEstimator(), ""
        self.start_s = self.printed_s = time.monotonic()

    def advance(self, event: TaskAdvanced) -> float:
        """Note that the task advanced, and return the time of the note."""
        now_s = time.monotonic()
        self.done += event.units
        self.eta.note(now_s, self.done, event.left_s)
        if event.info:
            self.info = ", ".join(_texts(event.info))
        return now_s

    def __str__(self) -> str:
        """Return the progress: `3/8`, or `37%` if the total is in seconds."""
        is_seconds = isinstance(self.total, float)
        return f"{self.done / self.total if self.total else 1:.0%}" if is_seconds else f"{self.done:.0f}/{self.total}"


class PlainReporter(Reporter):
    """Prints lines: for each task at most one every `every_s` seconds, and one at its end."""

    def __init__(self, stream: TextIO | None = None, every_s: float = 10.0) -> None:
        self.stream, self.every_s = stream or sys.stderr, every_s
        self._tasks: dict[str, ShownTask] = {}

    def emit(self, event: Event) -> None:
        """Print what is due."""
        match event:
            case Line(text):
                say(text, self.stream)
            case TaskStarted():
                self._tasks[event.task] = ShownTask(event)
            case TaskAdvanced():
                self._advance(self._tasks[event.task], event)
            case TaskFinished():
                task = self._tasks.pop(event.task)
                if task.total:  # a task without any units, such as a training of 0 steps, is not mentioned
                    say(f"{task.label}: {task} in {duration(time.monotonic() - task.start_s)}", self.stream)

    def _advance(self, task: ShownTask, event: TaskAdvanced) -> None:
        now_s = task.advance(event)
        if task.done and now_s - task.printed_s >= self.every_s and task.done < task.total:
            task.printed_s = now_s
            left_s = task.eta.left_s(now_s, task.total)
            left = [] if left_s is None else [f"{duration(left_s)} left"]
            say(f"{task.label}: {', '.join([str(task), *filter(None, [task.info]), *left])}", self.stream)


def let_go(stream: TextIO) -> None:
    """Discard everything that is still written to a stream, because nobody reads it any more (`| head`)."""
    with suppress(OSError, ValueError):  # the stream is no file, or closed already
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def duration(seconds: float) -> str:
    """Return seconds as a clock shows them: `75` -> `1:15`, `3700` -> `1:01:40`."""
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest_s:02}" if hours else f"{minutes}:{rest_s:02}"


def say(text: str, stream: TextIO) -> None:
    """Print a line. If nobody reads the stream any more, the work goes on without output."""
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        let_go(stream)


def _texts(info: Mapping[str, Info]) -> list[str]:
    return [f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in info.items()]
