"""Shows progress as one live display on an interactive terminal, and as plain lines elsewhere.

It is apart from `progress` because machines that only train may lack rich.
"""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from adaptive_bench.progress import (
    Event,
    Line,
    PlainReporter,
    Reporter,
    ShownTask,
    TaskAdvanced,
    TaskFinished,
    TaskStarted,
    duration,
)


class _Column(ProgressColumn):
    """A column with the progress, time left and info of a `ShownTask`."""

    def render(self, task: Task) -> Text:
        shown: ShownTask = task.fields["shown"]
        left_s = shown.eta.left_s(time.monotonic(), shown.total)
        return Text(f"{shown} {'-:--' if left_s is None else duration(left_s)} {shown.info}", "progress.remaining")


class RichReporter(Reporter, AbstractContextManager["RichReporter"]):
    """A reporter with one live display that shows the running tasks with their time left."""

    def __init__(self, console: Console | None = None) -> None:
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            _Column(),
            console=console or Console(stderr=True),
            transient=True,
        )
        self._bars: dict[str, tuple[ShownTask, TaskID]] = {}

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def emit(self, event: Event) -> None:
        """Update the display."""
        match event:
            case Line(text):
                self.progress.console.print(text, markup=False, highlight=False)
            case TaskStarted():
                shown = ShownTask(event)
                bar = self.progress.add_task(event.label, total=event.total, completed=int(event.done), shown=shown)
                self._bars[event.task] = shown, bar
            case TaskAdvanced():
                shown, bar = self._bars[event.task]
                shown.advance(event)
                self.progress.update(bar, completed=shown.done)
            case TaskFinished():
                self.progress.remove_task(self._bars.pop(event.task)[1])


def open_reporter() -> AbstractContextManager[Reporter]:
    """Return a live display if stderr is an interactive terminal, otherwise a reporter of plain lines on stderr."""
    console = Console(stderr=True)
    watched = sys.stderr.isatty() and not console.is_dumb_terminal
    return RichReporter(console) if watched else nullcontext(PlainReporter())
