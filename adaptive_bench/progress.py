"""Reports progress as typed events, which `live_display` shows to the user; and silences what libraries say besides.

    with reporter.task("train gateskip, seed 1", total=150) as task:
        for step in range(150):
            task.advance(1, loss=loss)
    reporter.line("batch halved to 16: out of memory")

Everything that a reporter is told is an event. Worker processes forward events unchanged, and no code parses a label.
"""

from __future__ import annotations

import logging
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Self
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
    """

    task: str
    units: float = 1
    info: Mapping[str, Info] = field(default_factory=dict)


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

    def advance(self, units: float = 1, **info: Info) -> None:
        """Count finished units; see `TaskAdvanced`."""
        self._reporter.emit(TaskAdvanced(self._task, units, info))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reporter.emit(TaskFinished(self._task))


class SilentReporter(Reporter):
    """Shows nothing, for library use and tests."""

    def emit(self, event: Event) -> None:
        """Ignore the event."""


def let_go(stream: IO[str]) -> None:
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


def say(text: str, stream: IO[str]) -> None:
    """Print a line. If nobody reads the stream any more, the work goes on without output."""
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        let_go(stream)


# The libraries' own switches, set before they are imported, so that only our own progress is shown.
_QUIET = {
    "ADAPTIVE_BENCH_QUIET": "1",  # for `adaptive_bench` itself, in processes that this one starts
    "DATASETS_VERBOSITY": "error",
    "HF_HUB_VERBOSITY": "error",
    "LMEVAL_LOG_LEVEL": "ERROR",
    "PYTHONWARNINGS": "ignore",  # for worker processes
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
# transformers imports torchao if it is installed, and torchao then reports what it could do on other machines.
_LOGGERS = ("torchao", "torch.utils._pytree")


def quiet() -> None:
    """Silence the libraries before they are imported, in worker processes too. Variables that the user has set stay."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    warnings.simplefilter("ignore")
    for logger in _LOGGERS:
        logging.getLogger(logger).setLevel(logging.ERROR)
