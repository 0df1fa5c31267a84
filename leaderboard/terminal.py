"""The short form a run ends with: the first metric of each task, plain text that fits a terminal of 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from adaptive_bench.metric import metric_of
from adaptive_bench.spec import method_name

from .curves import add_curves
from .decisions import decisions
from .grid import Grid, grids
from .marks import marks
from .numbers import number, percent
from .row import Row
from .rows import first_metrics
from .verdict import answer, level_of

WIDTH = 80
_LEVELS = 6
_NARROWEST = 14  # characters a method's name needs to stay readable
_GAP = 2  # between two columns
_HEADER = 2  # tabulate makes a column so much wider than its header at least
_BARS = "▁▂▃▄▅▆▇█"
_INTERVAL = "95 %\nat"  # header of the column of intervals
_REFERENCES = ("dense", "base")  # what methods are compared with
_NOWHERE = "·"  # of a curve that does not reach a level


def render(table: Iterable[Mapping[str, Any]], *, wide: bool = False) -> str:
    """Make the tables.

    Args:
        table: The rows to show; the caller chooses axis and phase.
        wide: Scores with their intervals, all levels, and what was saved and spent there, however wide that is.
    """
    rows = [Row.of(row) for row in table]
    add_curves(rows)
    headline = first_metrics(rows)
    chosen = grids(row for row in rows if row.metric == headline[row.task])
    parts = [part for grid in chosen for part in (_wide(grid) if wide else _narrow(grid))]
    if parts and not wide:
        parts.append("Scores, their intervals and every level: --wide.")
    return "\n\n".join(parts)


def _wide(grid: Grid) -> list[str]:
    training = grid.training("simple")
    parts = [grid.title, grid.scores("simple"), *grid.notes]
    parts += ["saved there, % of the dense model; kept: % of the dense score", grid.details("simple")]
    parts += decisions(grid, grid.levels)
    return [*parts, "training", training] if training else parts


def _narrow(grid: Grid) -> list[str]:
    """One line for each method: its curve, a bar for each level, and what it keeps of the dense score."""
    dense = next((row for (name, _), row in grid.cells.items() if name == "dense" and row.score is not None), None)
    known = dense is not None and metric_of(grid.metric).retention(dense.reached(), dense.reached()) is not None
    values = {place: _value(grid, row, dense if known else None) for place, row in grid.cells.items()}
    texts = {place: _text(grid, row, values[place], kept=known) for place, row in grid.cells.items()}
    at = level_of(grid)
    intervals = {name: _interval(grid.cells.get((name, at)), kept=known) for name in grid.methods} if at else {}
    taken = _GAP + max(map(len, (*_INTERVAL.split("\n"), *intervals.values())), default=0) + _HEADER
    shows = any(intervals.values())
    levels, room = _chosen(grid, texts, at if shows else None, taken if shows else 0)
    highest = max((value for value in values.values() if value is not None), default=0.0)
    header = ["method", "curve", *(f"{100 * level:.4g} %" for level in levels)]
    header += [f"{_INTERVAL} {100 * at:.4g} %"] if shows and at else []
    body = [
        [
            _broken(name, room),
            "".join(_bar(values.get((name, level)), highest) for level in grid.levels),
            *(texts.get((name, level), "") for level in levels),
            *([intervals[name]] if shows else []),
        ]
        for name in _best_first(grid, at)
    ]
    align = ("left", "left", *("right" for _ in header[2:]))
    table = tabulate(body, header, tablefmt="simple", colalign=align, disable_numparse=True)
    said = f"% of the dense score, {grid.score('dense', dense.level)}" if dense is not None and known else "score"
    notes = [f"{said}; curve: the same, a bar for each of {len(grid.levels)} levels.", *grid.notes]
    title = f"{grid.name}: % of the dense score, by {grid.axis_text} ({grid.metric})" if known else grid.title
    parts = [
        textwrap.fill(title, WIDTH),
        textwrap.fill(answer(grid), WIDTH),
        table,
        "\n".join(textwrap.fill(note, WIDTH) for note in notes),
        *_worths(grid),
    ]
    return [part for part in parts if part]


def _best_first(grid: Grid, level: float | None) -> list[str]:
    """Methods by their score at a level; those that save nothing come first, those that do not reach it last."""
    sign = -1 if metric_of(grid.metric).better == "lower" else 1

    def place(name: str) -> tuple[int, float]:
        row = grid.cells.get((name, level)) if level is not None else None
        if method_name(name) in _REFERENCES:
            return 0, 0.0
        return (2, 0.0) if row is None or row.score is None else (1, -sign * row.reached())

    return sorted(grid.methods, key=place)


def _interval(row: Row | None, *, kept: bool) -> str:
    """Ends of a cell's interval in whole percent of the dense score; empty where it is not known."""
    if row is None or not kept or row.kept_low is None or row.kept_high is None:
        return ""
    return f"[{100 * row.kept_low:.0f}, {100 * row.kept_high:.0f}]"


def _worths(grid: Grid) -> list[str]:
    """What decisions are worth at one level, in lines that fit."""
    title, *rest = decisions(grid, broken=_broken) or [""]
    return [textwrap.fill(title, WIDTH), *rest] if title else []


def _value(grid: Grid, row: Row, dense: Row | None) -> float | None:
    """What a bar and a cell are of: the share of the dense score, or the score."""
    if row.score is None:
        return None
    score = float(row.score)
    return score if dense is None else metric_of(grid.metric).retention(score, dense.reached())


def _text(grid: Grid, row: Row, value: float | None, *, kept: bool) -> str:
    if row.score is None:
        return "n/a"
    shown = number(grid.metric, row.score) if not kept else "n/a" if value is None else percent(value)
    return shown + "".join(mark for mark, _ in marks(row))


def _bar(value: float | None, highest: float) -> str:
    if value is None:
        return _NOWHERE
    share = value / highest if highest > 0 else 0.0
    return _BARS[round(min(max(share, 0.0), 1.0) * (len(_BARS) - 1))]


def _chosen(grid: Grid, texts: dict[tuple[str, float], str], at: float | None, taken: int) -> tuple[list[float], int]:
    """The levels that fit beside a column of so many characters, and the room they leave for the methods' names.

    Args:
        at: A level that is among them.
    """
    longest = max(map(len, ("method", *grid.methods)))
    for count in range(_LEVELS, 0, -1):
        levels = _spread(grid.levels, count)
        if at is not None and at not in levels:
            nearest = min(levels, key=lambda level: abs(level - at))
            levels = sorted({*levels, at} - {nearest})
        room = _room(grid, texts, levels) - taken
        if room >= min(longest, _NARROWEST):
            break
    return levels, max(room, 1)


def _room(grid: Grid, texts: dict[tuple[str, float], str], levels: Sequence[float]) -> int:
    """What a table of these levels leaves for the methods' names."""
    curve = _GAP + max(len("curve") + _HEADER, len(grid.levels))
    columns = [
        max(len(f"{100 * level:.4g} %") + _HEADER, *(len(texts.get((name, level), "")) for name in grid.methods))
        for level in levels
    ]
    return WIDTH - curve - sum(_GAP + column for column in columns)


def _spread(levels: Sequence[float], count: int) -> list[float]:
    """`count` of the levels, the first and the last among them if there are two or more."""
    if len(levels) <= count:
        return list(levels)
    if count == 1:
        return [levels[len(levels) // 2]]
    return [levels[-(-place * (len(levels) - 1) // (count - 1))] for place in range(count)]


def _broken(method: str, width: int) -> str:
    """A method's label in lines of at most `width` characters, broken between parameters where that is enough, else
    before their values.
    """
    lines = [""]
    parts = re.split(r"(?<=[\[,])|(?=@)", method)
    for part in (one for whole in parts for one in ([whole] if len(whole) <= width else re.split(r"(?<==)", whole))):
        for start in range(0, len(part), width):
            piece = part[start : start + width]
            if len(lines[-1]) + len(piece) <= width:
                lines[-1] += piece
            else:
                lines.append(piece)
    return "\n".join(lines)
