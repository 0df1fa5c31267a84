"""Shows progress as live bars on an interactive terminal, and as plain lines elsewhere.

It is apart from `progress` because machines that only train may lack rich.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from adaptive_bench.progress import Event, Line, Reporter, TaskAdvanced, TaskFinished, TaskStarted, duration, say

_SPEED_S = 3600.0  # the time left is estimated from the speed within so many seconds; one unit may take minutes


class Display(Reporter, AbstractContextManager["Display"]):
    """Shows running tasks with their time left: as bars on a terminal, elsewhere by a line for each now and then.

    Args:
        console: Where it is shown; by default standard error.
        every_s: Least seconds between two lines of a task.
    """

    def __init__(
        self, console: Console | None = None, every_s: float = 10.0, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        # Bars and colours only in a terminal: rich alone would follow FORCE_COLOR into log files.
        self.console = console or Console(stderr=True, force_terminal=None if sys.stderr.isatty() else False)
        self.every_s, self._now_s = every_s, now_s
        self.is_live = self.console.is_interactive
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            _Column(),
            console=self.console,
            transient=True,
            speed_estimate_period=_SPEED_S,
            get_time=now_s,
        )
        self._tasks: dict[str, Task] = {}

    def __enter__(self) -> Self:
        if self.is_live:
            self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_live:
            self.progress.stop()

    def emit(self, event: Event) -> None:
        """Show an event, at once or when a line is due."""
        match event:
            case Line(text):
                self._print(text)
            case TaskStarted(name, label, total, done):
                self.progress.add_task(label, total=total, completed=int(done), info="", printed_s=self._now_s())
                self._tasks[name] = self.progress.tasks[-1]
            case TaskAdvanced(name, units, info):
                task = self._tasks[name]
                texts = (f"{key} {one:.4g}" if isinstance(one, float) else f"{key} {one}" for key, one in info.items())
                shown = ", ".join(texts) or task.fields["info"]
                self.progress.update(task.id, advance=units, info=shown)
                self._print_now_and_then(task)
            case TaskFinished(name):
                task = self._tasks.pop(name)
                if task.total and not self.is_live:  # a task without any units is not mentioned
                    self._print(f"{task.description}: {_share(task)} in {duration(task.elapsed or 0)}")
                self.progress.remove_task(task.id)

    def _print_now_and_then(self, task: Task) -> None:
        now_s = self._now_s()
        if self.is_live or task.finished or now_s - task.fields["printed_s"] < self.every_s:
            return
        left = "" if task.time_remaining is None else f"{duration(task.time_remaining)} left"
        self._print(f"{task.description}: {', '.join(filter(None, [_share(task), task.fields['info'], left]))}")
        self.progress.update(task.id, printed_s=now_s)

    def _print(self, text: str) -> None:
        if self.is_live:
            self.console.print(text, markup=False, highlight=False)
        else:
            say(text, self.console.file)


class _Column(ProgressColumn):
    """A column with what is done of a task, its time left and its info."""

    def render(self, task: Task) -> Text:
        left = "-:--" if task.time_remaining is None else duration(task.time_remaining)
        return Text(f"{_share(task)} {left} {task.fields['info']}", "progress.remaining")


def _share(task: Task) -> str:
    """Return what is done: `3/8`, or `37%` if the total is in seconds."""
    return f"{task.percentage:.0f}%" if isinstance(task.total, float) else f"{task.completed:.0f}/{task.total}"
