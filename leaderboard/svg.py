"""Quality against saved compute as one SVG: a panel for each task, curves with intervals, drawn by no library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from .grid import Grid, grids
from .numbers import number
from .row import Row
from .rows import first_metrics

_COLOURS = ("#0b62b0", "#b84a00", "#00765a", "#9c2a78", "#6b5300", "#5b3fb8", "#b01e3c", "#0d6e80")
_WIDTH, _HEIGHT = 420, 240  # of the square of a panel's curves
_LEFT, _TOP, _LEGEND, _BELOW = 60, 36, 240, 48  # what stands around it
_LINE = 15  # between two names
_REFERENCES = ("dense", "base")


def render(table: Iterable[Mapping[str, Any]]) -> str:
    """Draw the first metric of each task; the caller chooses axis and phase. The same rows give the same bytes."""
    rows = [Row.of(row) for row in table]
    first = first_metrics(rows)
    chosen = [grid for grid in grids(row for row in rows if row.metric == first[row.task]) if _scores(grid)]
    panels, top = [], 0
    for grid in chosen:
        height = max(_TOP + _HEIGHT + _BELOW, _TOP + _LINE * (len(grid.methods) + 1))
        panels.append(f'<g transform="translate(0 {top})">\n{_panel(grid)}\n</g>')
        top += height
    width = _LEFT + _WIDTH + _LEGEND
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {max(top, 1)}" font-family="sans-serif" '
            f'font-size="11">',
            f"<title>{escape('; '.join(grid.title for grid in chosen))}</title>",
            '<rect width="100%" height="100%" fill="white"/>',
            *panels,
            "</svg>\n",
        ]
    )


def _panel(grid: Grid) -> str:
    scores = _scores(grid)
    low, high = min(scores), max(scores)
    end = max(level for _, level in grid.cells) or 1.0

    def across(level: float) -> float:
        return round(_LEFT + _WIDTH * level / end, 1)

    def up(score: float) -> float:
        return round(_TOP + _HEIGHT * (1 - ((score - low) / (high - low) if high > low else 0.5)), 1)

    right, bottom = _LEFT + _WIDTH, _TOP + _HEIGHT
    parts = [
        f'<text x="{_LEFT}" y="20" font-weight="bold">{escape(grid.compared)}</text>',
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#555"/>',
        f'<text x="{(_LEFT + right) / 2}" y="{bottom + 34}" text-anchor="middle">{escape(grid.axis_text)} (%)</text>',
        *(
            f'<text x="{across(level)}" y="{bottom + 16}" text-anchor="middle">{100 * level:.4g}</text>'
            for level in grid.levels
        ),
        *(
            f'<text x="{_LEFT - 6}" y="{up(score) + 4:.1f}" text-anchor="end">{number(grid.metric, score)}</text>'
            for score in dict.fromkeys((low, (low + high) / 2, high))
        ),
    ]
    for place, name in enumerate(grid.methods):
        reached = sorted(
            (row for (method, _), row in grid.cells.items() if method == name and row.score is not None),
            key=lambda row: row.level,
        )
        colour = "#333" if name in _REFERENCES else _COLOURS[place % len(_COLOURS)]
        line = _TOP + _LINE * place
        parts.append(f'<path d="M{right + 14} {line}h18" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{right + 38}" y="{line + 4}">{escape(name)}{"" if reached else " (n/a)"}</text>')
        if name in _REFERENCES and reached:
            dash = "" if name == "dense" else ' stroke-dasharray="2 3"'
            parts.append(f'<path d="M{_LEFT} {up(reached[0].reached())}H{right}" stroke="{colour}"{dash}/>')
            continue
        points = " ".join(f"{across(row.level)},{up(row.reached())}" for row in reached)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        for row in reached:
            x = across(row.level)
            parts.append(f'<circle cx="{x}" cy="{up(row.reached())}" r="3" fill="{colour}"/>')
            if row.low is not None and row.high is not None:
                parts.append(f'<path d="M{x} {up(row.low)}V{up(row.high)}" stroke="{colour}" opacity=".6"/>')
    return "\n".join(parts)


def _scores(grid: Grid) -> list[float]:
    """Every score and end of an interval in it."""
    values = ((row.score, row.low, row.high) for row in grid.cells.values() if row.score is not None)
    return [float(value) for one in values for value in one if value is not None]
