"""Quality against saved compute, drawn with characters: one picture for each task, in the width of a terminal."""

from __future__ import annotations

import shutil
import string
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from adaptive_bench.metric import metric_of

from .grid import Grid, grids
from .numbers import number
from .row import Row
from .rows import first_metrics

_HEIGHT = 14  # lines between the axes
_NARROWEST, _WIDEST = 40, 120
_NOBODY, _SEVERAL = " ", "*"
_LINE = "·"
_MOST = len(string.ascii_uppercase)


def render(table: Iterable[Mapping[str, Any]], *, width: int | None = None) -> str:
    """Draw the first metric of each task.

    Args:
        table: The rows to show; the caller chooses axis and phase.
        width: In characters; by default that of the terminal.
    """
    rows = [Row.of(row) for row in table]
    first = first_metrics(rows)
    room = min(_WIDEST, max(_NARROWEST, width or shutil.get_terminal_size((80, 24)).columns))
    chosen = grids(row for row in rows if row.metric == first[row.task])
    return "\n\n".join(drawn for grid in chosen if (drawn := draw(grid, room)))


def draw(grid: Grid, width: int) -> str:
    """Scores of a grid's methods over its levels; empty where there is none.

    A letter stands where a score was read, dots lie on the line between two of one method, `*` is more than one letter.
    """
    lines = {name: _points(grid, name) for name in grid.methods}
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return ""
    shown = dict(list(lines.items())[:_MOST])
    every = [point for points in shown.values() for point in points]
    lowest, highest = min(score for _, score in every), max(score for _, score in every)
    end = max((level for level, _ in every), default=0.0)
    labels = [number(grid.metric, score) for score in (highest, (lowest + highest) / 2, lowest)]
    left = max(map(len, labels))
    canvas = _Canvas(width - left - 2, (0.0, end), (lowest, highest))
    letters = dict(zip(shown, string.ascii_uppercase, strict=False))
    for name, points in shown.items():
        canvas.add(letters[name], points)
    at = {0: labels[0], _HEIGHT // 2: labels[1], _HEIGHT - 1: labels[2]}
    body = [f"{at.get(line, ''):>{left}} │{text}".rstrip() for line, text in enumerate(canvas.lines())]
    last = f"{100 * end:.4g} %"
    foot = f"{'':>{left}} └{'─' * canvas.width}"
    axis = f"{'':>{left}}  0 %{grid.axis_text:^{max(canvas.width - 3 - len(last), 0)}}{last}"
    worse = " Lower is better." if metric_of(grid.metric).better == "lower" else ""
    left_out = f" Not drawn: {len(lines) - _MOST} more." if len(lines) > _MOST else ""
    names = ", ".join(f"{letter} {name}" for name, letter in letters.items())
    title, legend = textwrap.wrap(f"{grid.compared}.{worse}", width), _legend(names, left_out, width)
    return "\n".join([*title, *body, foot, axis, *legend])


def _legend(names: str, left_out: str, width: int) -> Sequence[str]:
    return textwrap.wrap(f"{names}. {_SEVERAL} several at once.{left_out}", width, break_long_words=False)


def _points(grid: Grid, name: str) -> list[tuple[float, float]]:
    found = [(level, row.score) for (method, level), row in grid.cells.items() if method == name]
    return sorted((level, float(score)) for level, score in found if score is not None)


class _Canvas:
    """Characters in lines, with points placed by level and score."""

    def __init__(self, width: int, levels: tuple[float, float], scores: tuple[float, float]) -> None:
        self.width, self._levels, self._scores = width, levels, scores
        self._signs: dict[tuple[int, int], str] = {}
        self._dots: set[tuple[int, int]] = set()

    def add(self, sign: str, points: Sequence[tuple[float, float]]) -> None:
        """A method's points, with dots on the lines between them."""
        for level, score in points:
            place = self._place(level, score)
            self._signs[place] = _SEVERAL if self._signs.get(place, sign) != sign else sign
        for (start, first), (end, second) in pairwise(points):
            steps = 2 * self.width
            for step in range(steps + 1):
                share = step / steps
                self._dots.add(self._place(start + share * (end - start), first + share * (second - first)))

    def lines(self) -> list[str]:
        """From the highest score to the lowest."""
        return ["".join(self._sign(column, line) for column in range(self.width)) for line in range(_HEIGHT)]

    def _sign(self, column: int, line: int) -> str:
        return self._signs.get((column, line), _LINE if (column, line) in self._dots else _NOBODY)

    def _place(self, level: float, score: float) -> tuple[int, int]:
        return (
            round(_share(level, self._levels) * (self.width - 1)),
            _HEIGHT - 1 - round(_share(score, self._scores) * (_HEIGHT - 1)),
        )


def _share(value: float, ends: tuple[float, float]) -> float:
    low, high = ends
    return (value - low) / (high - low) if high > low else 0.0
