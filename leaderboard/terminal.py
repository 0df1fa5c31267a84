"""The short form a run ends with: the first metric of each task, plain text that fits a terminal of 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from .grid import Grid, Row, grids

WIDTH = 80
_LEVELS = 3
_NARROWEST = 14  # characters a method's name needs to stay readable
_GAP = 2  # between two columns


def render(rows: Sequence[Row], *, wide: bool = False) -> str:
    """Make the tables.

    Args:
        rows: The rows to show; the caller chooses axis and phase.
        wide: All levels, and what was saved and spent there, however wide that is.
    """
    headline: dict[str, str] = {}
    for row in rows:
        headline.setdefault(row["task"], row["metric"])
    chosen = grids(row for row in rows if row["metric"] == headline[row["task"]])
    return "\n\n".join(part for grid in chosen for part in (_wide(grid) if wide else _narrow(grid)))


def _wide(grid: Grid) -> list[str]:
    training = grid.training("simple")
    parts = [grid.title, grid.scores("simple"), *grid.notes]
    parts += ["saved there, % of the dense model; kept: % of the dense score", grid.details("simple")]
    return [*parts, "training", training] if training else parts


def _narrow(grid: Grid) -> list[str]:
    levels, room = _chosen(grid)
    notes = list(grid.notes)
    if len(levels) < len(grid.levels):
        notes.append(f"{len(levels)} of {len(grid.levels)} levels; --wide shows all, and what was saved there.")
    table = grid.scores("simple", levels, shown=lambda method: _broken(method, room))
    parts = [textwrap.fill(grid.title, WIDTH), table, "\n".join(textwrap.fill(note, WIDTH) for note in notes)]
    return [part for part in parts if part]


def _chosen(grid: Grid) -> tuple[list[float], int]:
    """The levels that fit, and the room they leave for the methods' names."""
    longest = max(map(len, ("method", *grid.methods)))
    for count in range(_LEVELS, 0, -1):
        levels = _spread(grid.levels, count)
        texts = [[f"{100 * level:.4g} %", *(grid.score(method, level) for method in grid.methods)] for level in levels]
        room = WIDTH - sum(_GAP + max(map(len, column)) for column in texts)
        if room >= min(longest, _NARROWEST):
            break
    return levels, max(room, 1)


def _spread(levels: Sequence[float], count: int) -> list[float]:
    """`count` of the levels, the first and the last among them if there are two or more."""
    if len(levels) <= count:
        return list(levels)
    if count == 1:
        return [levels[len(levels) // 2]]
    return [levels[-(-place * (len(levels) - 1) // (count - 1))] for place in range(count)]


def _broken(method: str, width: int) -> str:
    """A method's label in lines of at most `width` characters, broken between parameters where that is enough."""
    lines = [""]
    for part in re.split(r"(?<=[\[,])|(?=@)", method):
        for start in range(0, len(part), width):
            piece = part[start : start + width]
            if len(lines[-1]) + len(piece) <= width:
                lines[-1] += piece
            else:
                lines.append(piece)
    return "\n".join(lines)
