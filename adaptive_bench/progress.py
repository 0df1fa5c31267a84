"""How long work tells the user where it stands: one live display on a terminal, plain lines elsewhere.

    with reporter.task("train gateskip, seed 1", total=150) as meter:
        for step in range(150):
            meter.advance(1, loss=loss)
    reporter.line("batch halved to 16: out of memory")

Tasks may be nested; the outer one then shows the time left of the whole.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

Info = float | int | str


class Meter(ABC):
    """One piece of work with a known number of units. Starts when made, ends when its `with` block ends."""

    @abstractmethod
    def advance(self, units: float = 1, **info: Info) -> None:
        """Count finished units; `info` is shown beside them, for example `loss=0.31`."""

    @abstractmethod
    def end(self) -> None:
        """The work is over (or was given up)."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class Reporter(Protocol):
    """What training, evaluation and the runner talk to."""

    def task(self, name: str, total: float) -> Meter:
        """Start a piece of work of `total` units. A `float` means seconds, of which the share that is done is shown."""

    def line(self, text: str) -> None:
        """Say something once."""


class _SilentMeter(Meter):
    def advance(self, units: float = 1, **info: Info) -> None: ...

    def end(self) -> None: ...


class SilentReporter:
    """Says nothing: for library use and tests."""

    def task(self, name: str, total: float) -> Meter:
        return _SilentMeter()

    def line(self, text: str) -> None: ...


class _PlainMeter(Meter):
    def __init__(self, name: str, total: float, stream: TextIO, every_s: float) -> None:
        self.name, self.total, self.stream, self.every_s = name, total, stream, every_s
        self.done: float = 0
        self.start_s = self.printed_s = time.monotonic()

    def advance(self, units: float = 1, **info: Info) -> None:
        self.done += units
        now_s = time.monotonic()
        if self.done and now_s - self.printed_s >= self.every_s and self.done < self.total:
            self.printed_s = now_s
            left_s = (now_s - self.start_s) * (self.total - self.done) / self.done
            parts = [_done(self.done, self.total), *_texts(info), f"{duration(left_s)} left"]
            _print(f"{self.name}: {', '.join(parts)}", self.stream)

    def end(self) -> None:
        elapsed = duration(time.monotonic() - self.start_s)
        _print(f"{self.name}: {_done(self.done, self.total)} in {elapsed}", self.stream)


def _print(text: str, stream: TextIO) -> None:
    """Print a line, if anybody is there to read it: work goes on when a pipe behind it was closed."""
    with suppress(OSError, ValueError):
        print(text, file=stream, flush=True)


class PlainReporter:
    """Prints lines, at most one every `every_s` seconds for each task and one at its end."""

    def __init__(self, stream: TextIO | None = None, every_s: float = 10.0) -> None:
        self.stream, self.every_s = stream or sys.stderr, every_s

    def task(self, name: str, total: float) -> Meter:
        return _PlainMeter(name, total, self.stream, self.every_s)

    def line(self, text: str) -> None:
        _print(text, self.stream)


class _DoneColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(_done(task.completed, 0 if task.total is None else task.total), style="progress.download")


class _RichMeter(Meter):
    def __init__(self, progress: Progress, name: str, total: float) -> None:
        self.progress = progress
        self.id = progress.add_task(name, total=total, info="")

    def advance(self, units: float = 1, **info: Info) -> None:
        if info:
            self.progress.update(self.id, info=", ".join(_texts(info)))
        self.progress.advance(self.id, units)

    def end(self) -> None:
        self.progress.remove_task(self.id)


class RichReporter(AbstractContextManager["RichReporter"]):
    """One live display that shows the running tasks with their time left."""

    def __init__(self, console: Console | None = None) -> None:
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            _DoneColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[info]}", markup=False),
            console=console or Console(stderr=True),
            transient=True,
            speed_estimate_period=600,
        )

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def task(self, name: str, total: float) -> Meter:
        return _RichMeter(self.progress, name, total)

    def line(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False)


def open_reporter() -> AbstractContextManager[Reporter]:
    """The live display if somebody watches a terminal, plain lines otherwise (both on stderr)."""
    console = Console(stderr=True)
    watched = sys.stderr.isatty() and not console.is_dumb_terminal
    return RichReporter(console) if watched else nullcontext(PlainReporter())


def duration(seconds: float) -> str:
    """`75` -> `1:15`, `3700` -> `1:01:40`."""
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest_s:02}" if hours else f"{minutes}:{rest_s:02}"


def _done(done: float, total: float) -> str:
    """`3/8`, or of seconds `37 %`."""
    return f"{done / total if total else 1:.0%}" if isinstance(total, float) else f"{done:.0f}/{total}"


def _texts(info: dict[str, Info]) -> list[str]:
    return [f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in info.items()]
