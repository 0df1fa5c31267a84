"""How long work tells the user where it stands: one live display on a terminal, plain lines elsewhere.

    with reporter.task("train gateskip, seed 1", total=150) as meter:
        for step in range(150):
            meter.advance(1, loss=loss)
    reporter.line("batch halved to 16: out of memory")

Tasks may be nested; the outer one then shows the time left of the whole.
"""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

Info = float | int | str


class Meter(ABC):
    """One piece of work with a known number of units. Starts when made, ends when its `with` block ends."""

    @abstractmethod
    def advance(self, units: float = 1, **info: Info) -> None:
        """Count finished units; `info` is shown beside them, for example `loss=0.31`."""

    def expect(self, left_s: float) -> None:  # noqa: B027 - whoever shows no time need not know
        """Say how many seconds it will take yet, where that is known better than from its pace."""

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


class Pace:
    """Says how long a task will take yet, at its pace since the first units were done: what came before them, the start
    of processes for example, comes once.
    """

    def __init__(self) -> None:
        self.first: tuple[float, float] | None = None
        self.last = (0.0, 0.0)
        self.expected: tuple[float, float] | None = None

    def expect(self, now_s: float, left_s: float) -> None:
        """It is known to take so many seconds from now on."""
        self.expected = now_s, left_s

    def note(self, now_s: float, done: float) -> None:
        """So much is done by now."""
        self.first = self.first or (now_s, done)
        self.last = (now_s, done)

    def left_s(self, now_s: float, total: float) -> float | None:
        """Seconds that are left; `None` as long as nothing can be said."""
        if self.expected is not None:
            return max(0.0, self.expected[1] - (now_s - self.expected[0]))
        if self.first is None or self.last[1] <= self.first[1]:
            return None
        second_s = (self.last[0] - self.first[0]) / (self.last[1] - self.first[1])
        return max(0.0, second_s * (total - self.last[1]) - (now_s - self.last[0]))


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
        self.pace = Pace()
        self.start_s = self.printed_s = time.monotonic()

    def advance(self, units: float = 1, **info: Info) -> None:
        self.done += units
        now_s = time.monotonic()
        self.pace.note(now_s, self.done)
        if self.done and now_s - self.printed_s >= self.every_s and self.done < self.total:
            self.printed_s = now_s
            left_s = self.pace.left_s(now_s, self.total)
            left = [] if left_s is None else [f"{duration(left_s)} left"]
            parts = [_done(self.done, self.total), *_texts(info), *left]
            say(f"{self.name}: {', '.join(parts)}", self.stream)

    def expect(self, left_s: float) -> None:
        self.pace.expect(time.monotonic(), left_s)

    def end(self) -> None:
        elapsed = duration(time.monotonic() - self.start_s)
        say(f"{self.name}: {_done(self.done, self.total)} in {elapsed}", self.stream)


class PlainReporter:
    """Prints lines, at most one every `every_s` seconds for each task and one at its end."""

    def __init__(self, stream: TextIO | None = None, every_s: float = 10.0) -> None:
        self.stream, self.every_s = stream or sys.stderr, every_s

    def task(self, name: str, total: float) -> Meter:
        return _PlainMeter(name, total, self.stream, self.every_s)

    def line(self, text: str) -> None:
        say(text, self.stream)


class _DoneColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(_done(task.completed, 0 if task.total is None else task.total), style="progress.download")


class _LeftColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        left_s = task.fields["pace"].left_s(time.monotonic(), task.total or 0.0)
        return Text("-:--" if left_s is None else duration(left_s), style="progress.remaining")


class _RichMeter(Meter):
    def __init__(self, progress: Progress, name: str, total: float) -> None:
        self.progress, self.done, self.pace = progress, 0.0, Pace()
        self.id = progress.add_task(name, total=total, info="", pace=self.pace)

    def advance(self, units: float = 1, **info: Info) -> None:
        self.done += units
        self.pace.note(time.monotonic(), self.done)
        if info:
            self.progress.update(self.id, info=", ".join(_texts(info)))
        self.progress.advance(self.id, units)

    def expect(self, left_s: float) -> None:
        self.pace.expect(time.monotonic(), left_s)

    def end(self) -> None:
        self.progress.remove_task(self.id)


class RichReporter(AbstractContextManager["RichReporter"]):
    """One live display that shows the running tasks with their time left."""

    def __init__(self, console: Console | None = None) -> None:
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            _DoneColumn(),
            _LeftColumn(),
            TextColumn("{task.fields[info]}", markup=False),
            console=console or Console(stderr=True),
            transient=True,
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


def let_go(stream: TextIO) -> None:
    """Send what a stream is still given nowhere: nobody reads it any more (`| head`)."""
    with suppress(OSError, ValueError):  # it is no file, or closed already
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def duration(seconds: float) -> str:
    """`75` -> `1:15`, `3700` -> `1:01:40`."""
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest_s:02}" if hours else f"{minutes}:{rest_s:02}"


def say(text: str, stream: TextIO) -> None:
    """A line. Work is not given up because nobody reads about it."""
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        let_go(stream)


def _done(done: float, total: float) -> str:
    """`3/8`, or of seconds `37 %`."""
    return f"{done / total if total else 1:.0%}" if isinstance(total, float) else f"{done:.0f}/{total}"


def _texts(info: dict[str, Info]) -> list[str]:
    return [f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in info.items()]
