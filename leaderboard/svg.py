"""Draws score against saving as an SVG: a line for each method and control through the levels it was measured at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from .boards import groups_of, read_board
from .list_text import AXES
from .standing import Line, Standing, standings

_COLOURS = ("#0b62b0", "#b84a00", "#00765a", "#c04fa0", "#8a6d00", "#5b3fb8", "#d02040", "#0e93a8", "#7a9a01",
            "#e09000", "#4aa3df", "#8c5a3c", "#9a8cff", "#5a6b7a", "#ff7f6a", "#2fbf71")  # fmt: skip
_WIDTH, _HEIGHT = 440, 260  # of the area of the curves
_LEFT, _TOP, _BELOW = 48, 16, 44  # margins around it
_LINE, _LETTER, _LONGEST = 16, 7, 60  # of the names beside it: height of a line, width of a letter, most letters
_LOWEST, _HIGHEST = -0.5, 1.5  # scores beyond these are drawn on the edge
MOST_CURVES = 16


def render(tables: Sequence[Path]) -> str:
    """Draw the first model of some `table.json` files. The same tables give the same bytes."""
    groups = groups_of(read_board(tables))
    return chart(standings(groups[0].board) if groups else [])


def series(found: Sequence[Standing]) -> dict[str, list[Line]]:
    """For each label, its lines with a score, at rising levels; keeps the `MOST_CURVES` labels with the best scores."""
    by_label: dict[str, list[Line]] = {}
    for standing in found:
        for line in standing.lines:
            if line.score is not None and line.saved is not None:
                by_label.setdefault(line.label, []).append(line)
    # Models that skip nothing come first: the others are read against them, however poor they are.
    best = sorted(by_label, key=lambda label: (not by_label[label][0].is_reference, -max(map(_score, by_label[label]))))
    return {label: by_label[label] for label in by_label if label in best[:MOST_CURVES]}


def _score(line: Line) -> float:
    return line.score or 0.0


def _saved(line: Line) -> float:
    return line.saved or 0.0


def _ticks(low: float, high: float, step: float) -> list[float]:
    """Multiples of a step from below the lowest value to above the highest."""
    # A value on a tick may lie a rounding beyond it: no further tick for that.
    ends = math.floor(low / step + 1e-6), math.ceil(high / step - 1e-6)
    return [round(place * step, 6) for place in range(ends[0], ends[1] + 1)]


def chart(found: Sequence[Standing]) -> str:
    """The drawing of some levels of one model; all text in it is escaped."""
    curves = series(found)
    names = {label: label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…" for label in curves}
    right, bottom = _LEFT + _WIDTH, _TOP + _HEIGHT
    # Names stand beside the area, one below the other, and may be more than fit.
    height = max(bottom + _BELOW, _TOP + _LINE * (len(curves) + 1))
    width = right + 44 + _LETTER * max(map(len, names.values()), default=0)
    frame = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'font-family="sans-serif" font-size="12">'
    )
    if not curves:
        return f"{frame}<title>Nothing was measured</title></svg>\n"
    lines = [line for some in curves.values() for line in some]
    first, last = min(0.0, *map(_saved, lines)), max(0.05, *map(_saved, lines))
    step = next((one for one in (0.05, 0.1) if last - first <= 8 * one), 0.2)
    # The area reaches from tick to tick, so from here on its ends are those of the ticks.
    across_ticks = _ticks(first, last, step)
    up_ticks = _ticks(max(_LOWEST, min(0.0, *map(_score, lines))), min(_HIGHEST, max(1.0, *map(_score, lines))), 0.25)
    (first, last), (low, high) = ((ticks[0], ticks[-1]) for ticks in (across_ticks, up_ticks))

    def across(saving: float) -> float:
        return round(_LEFT + _WIDTH * (saving - first) / (last - first), 1)

    def up(score: float) -> float:
        return round(_TOP + _HEIGHT * (high - min(max(score, low), high)) / (high - low), 1)

    axis = escape(AXES.get(found[0].axis, found[0].axis))
    parts = [
        f"<title>Score at different savings (% {axis})</title>",
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#888"/>',
        f'<text x="{(_LEFT + right) / 2}" y="{bottom + 34}" text-anchor="middle" fill="currentColor">% {axis}</text>',
        f'<text x="4" y="{_TOP - 5}" fill="currentColor">score</text>',
    ]
    parts += [
        f'<text x="{_LEFT - 6}" y="{up(at) + 4:.1f}" text-anchor="end" fill="currentColor">'
        f"{'≤ ' * (at == low and any(_score(line) < low for line in lines))}{100 * at:.0f}</text>"
        for at in up_ticks
    ]
    parts += [
        f'<text x="{across(at)}" y="{bottom + 16}" text-anchor="middle" fill="currentColor">{100 * at:.0f}</text>'
        for at in across_ticks
    ]
    for place, (label, some) in enumerate(curves.items()):
        # Colour goes by place among all curves, dashes mark what does not choose for every token.
        colour = "#888" if some[0].is_reference else _COLOURS[place % len(_COLOURS)]
        dash = "" if some[0].chooses == "per token" else ' stroke-dasharray="4 3"'
        row = _TOP + _LINE * place
        parts.append(f'<path d="M{right + 14} {row}h18" stroke="{colour}" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{right + 38}" y="{row + 4}" fill="currentColor">{escape(names[label])}</text>')
        if some[0].is_reference:
            parts.append(f'<path d="M{_LEFT} {up(_score(some[0]))}H{right}" stroke="{colour}"{dash}/>')
            continue
        points = " ".join(f"{across(_saved(line))},{up(_score(line))}" for line in some)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>')
        for line in some:
            x = across(_saved(line))
            parts.append(f'<circle cx="{x}" cy="{up(_score(line))}" r="3" fill="{colour}"/>')
            if line.interval is not None:
                parts.append(f'<path d="M{x} {up(line.interval[0])}V{up(line.interval[1])}" stroke="{colour}"/>')
    return "\n".join([frame, *parts, "</svg>\n"])
