"""Score against saving as one SVG, controls in it: a line for each method through the levels it was measured at."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from .frame import read_board
from .groups import groups_of
from .headline import AXES
from .standing import Line, Standing, standings

_COLOURS = ("#0b62b0", "#b84a00", "#00765a", "#9c2a78", "#6b5300", "#5b3fb8", "#b01e3c", "#0d6e80")
_WIDTH, _HEIGHT = 420, 240  # of the square of the curves
_LEFT, _TOP, _LEGEND, _BELOW = 48, 28, 260, 44  # what stands around it
_LINE = 15  # between two names
MOST_CURVES = 16


def render(tables: Sequence[Path]) -> str:
    """Draw the first model of some `table.json`. The same tables give the same bytes."""
    groups = groups_of(read_board(tables))
    return chart(standings(groups[0].board) if groups else [])


def series(found: Sequence[Standing]) -> dict[str, list[Line]]:
    """By label its lines with a score, at rising levels; of many methods those that are best anywhere."""
    by_label: dict[str, list[Line]] = {}
    for standing in found:
        for line in standing.lines:
            if line.score is not None and line.saved is not None:
                by_label.setdefault(line.label, []).append(line)
    best = sorted(by_label, key=lambda label: (not by_label[label][0].is_reference, -max(map(_score, by_label[label]))))
    return {label: by_label[label] for label in by_label if label in best[:MOST_CURVES]}


def _score(line: Line) -> float:
    return line.score or 0.0


def chart(found: Sequence[Standing]) -> str:
    """The drawing of some levels of one model; text in it never acts."""
    curves = series(found)
    height = max(_TOP + _HEIGHT + _BELOW, _TOP + _LINE * (len(curves) + 1))
    width = _LEFT + _WIDTH + _LEGEND
    frame = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'font-family="sans-serif" font-size="11">'
    )
    if not curves:
        return f"{frame}<title>Nothing was measured</title></svg>\n"
    lines = [line for some in curves.values() for line in some]
    end = max(0.05, *(line.saved or 0.0 for line in lines))
    low = min(0.0, *map(_score, lines))
    high = max(1.0, *map(_score, lines))

    def across(saving: float) -> float:
        return round(_LEFT + _WIDTH * max(saving, 0.0) / (1.05 * end), 1)

    def up(score: float) -> float:
        return round(_TOP + _HEIGHT * (high - min(max(score, low), high)) / (high - low), 1)

    right, bottom = _LEFT + _WIDTH, _TOP + _HEIGHT
    parts = [
        f"<title>Score against {escape(AXES.get(found[0].axis, found[0].axis))}</title>",
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#888"/>',
        f'<text x="{(_LEFT + right) / 2}" y="{bottom + 34}" text-anchor="middle" fill="currentColor">measured saving, '
        f"% {escape(AXES.get(found[0].axis, found[0].axis))}</text>",
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(
            f'<text x="{_LEFT - 6}" y="{up(share) + 4:.1f}" text-anchor="end" fill="currentColor">'
            f"{100 * share:.0f}</text>"
        )
        at = share * end
        parts.append(
            f'<text x="{across(at)}" y="{bottom + 16}" text-anchor="middle" fill="currentColor">{100 * at:.0f}</text>'
        )
    for place, (label, some) in enumerate(curves.items()):
        colour = "#888" if some[0].is_reference else _COLOURS[place % len(_COLOURS)]
        dash = "" if some[0].chooses == "per token" else ' stroke-dasharray="4 3"'
        row = _TOP + _LINE * place
        parts.append(f'<path d="M{right + 14} {row}h18" stroke="{colour}" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{right + 38}" y="{row + 4}" fill="currentColor">{escape(label)}</text>')
        if some[0].is_reference:
            parts.append(f'<path d="M{_LEFT} {up(_score(some[0]))}H{right}" stroke="{colour}"{dash}/>')
            continue
        points = " ".join(f"{across(line.saved or 0.0)},{up(_score(line))}" for line in some)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>')
        for line in some:
            x = across(line.saved or 0.0)
            parts.append(f'<circle cx="{x}" cy="{up(_score(line))}" r="3" fill="{colour}"/>')
            if line.interval is not None:
                parts.append(f'<path d="M{x} {up(line.interval[0])}V{up(line.interval[1])}" stroke="{colour}"/>')
    return "\n".join([frame, *parts, "</svg>\n"])
