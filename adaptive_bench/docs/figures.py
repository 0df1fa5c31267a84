"""Draws the documentation's figures whose numbers come from records, as SVG in colours for light and dark pages.

The same records give the same bytes on any machine. Figures without numbers were drawn once and exist only as files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

# Every colour that text is written in has a contrast to `paper` of at least 4.5 (WCAG 1.4.3), which a test checks.
_NAMES = ("paper", "ink", "faint", "rule", "accent", "second", "soft", "warm")
_LIGHT = ("#ffffff", "#1f2937", "#5b6472", "#c4cad4", "#3949ab", "#a14a05", "#dfe3f6", "#fbe5cc")
_DARK = ("#1e2129", "#e5e7eb", "#a8b0be", "#4b5365", "#a5b0ff", "#f3b25f", "#343c68", "#57411f")
LIGHT, DARK = dict(zip(_NAMES, _LIGHT, strict=True)), dict(zip(_NAMES, _DARK, strict=True))
WRITTEN_IN = ("ink", "faint", "accent", "second")
FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
CLASS = "drawing"
_TASK = "nano_math"
_LEVEL = 0.15  # saving at which headroom is shown
_Spot = tuple[float, float]


def colours(palette: Mapping[str, str]) -> str:
    """A palette as CSS declarations."""
    return "".join(f"--drawing-{name}:{value};" for name, value in palette.items())


class Drawing:
    """Shapes on a sheet of `width` x `height` units; x grows to the right, y down, and letters default to 12 units.

    Colours are names of the palettes. `title` describes the figure for readers who cannot see it.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height = width, height
        self._title = title
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, fill: str, line: str) -> None:
        """A rectangle from its upper left corner."""
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3"'
        self._parts.append(f"<rect {place} {_look(fill, line)}/>")

    def line(self, points: Iterable[_Spot], colour: str = "ink", *, width: float = 1.5, dashed: bool = False) -> None:
        """Straight lines through points."""
        where = " ".join(f"{x:.4g},{y:.4g}" for x, y in points)
        self._parts.append(f'<polyline points="{where}" {_look(None, colour, dashed, width)}/>')

    def dot(self, x: float, y: float, colour: str = "accent", *, hollow: bool = False, radius: float = 4) -> None:
        """A circle around a point."""
        fill = "paper" if hollow else colour
        self._parts.append(f'<circle cx="{x:.4g}" cy="{y:.4g}" r="{radius:g}" {_look(fill, colour)}/>')

    def diamond(self, x: float, y: float, colour: str = "second") -> None:
        """A diamond-shaped mark."""
        corners = f"{x:.4g},{y - 7:.4g} {x + 7:.4g},{y:.4g} {x:.4g},{y + 7:.4g} {x - 7:.4g},{y:.4g}"
        self._parts.append(f'<polygon points="{corners}" {_look("paper", colour, width=2)}/>')

    def text(
        self,
        x: float,
        y: float,
        words: str,
        colour: str = "ink",
        *,
        anchor: str = "start",
        size: float = 12,
        bold: bool = False,
    ) -> None:
        """A line of text with its base line at y; `anchor` is `start`, `middle` or `end`."""
        weight = ' font-weight="600"' if bold else ""
        place = f'x="{x:.4g}" y="{y:.4g}" text-anchor="{anchor}" font-size="{size:g}"{weight}'
        self._parts.append(f'<text {place} style="fill:var(--drawing-{colour})">{escape(words)}</text>')

    def columns(self, ticks: Mapping[float, str], top: float, bottom: float, below: float = 16) -> None:
        """Lines from top to bottom: for each x, the text below its line."""
        for x, words in ticks.items():
            self.line([(x, top), (x, bottom)], "rule", width=0.8)
            self.text(x, bottom + below, words, "faint", anchor="middle", size=11)

    def rows(self, ticks: Mapping[float, str], left: float, right: float) -> None:
        """Lines from left to right: for each y, the text before its line."""
        for y, words in ticks.items():
            self.line([(left, y), (right, y)], "rule", width=0.8)
            self.text(left - 6, y + 4, words, "faint", anchor="end", size=11)

    def svg(self) -> str:
        """The SVG file, which works by itself: it has a background and follows the reader's light or dark setting."""
        dark = f"@media (prefers-color-scheme:dark){{.{CLASS}{{{colours(DARK)}}}}}"
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{CLASS}" viewBox="0 0 {self.width} {self.height}" '
            f'role="img" font-family="{FAMILY}">',
            f"<title>{escape(self._title)}</title>",
            f"<style>.{CLASS}{{{colours(LIGHT)}}}{dark}</style>",
            f'<rect class="paper" width="{self.width}" height="{self.height}" style="fill:var(--drawing-paper)"/>',
            *self._parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


def _look(fill: str | None, line: str, dashed: bool = False, width: float = 1.2) -> str:
    inside = "none" if fill is None else f"var(--drawing-{fill})"
    style = f"fill:{inside};stroke:var(--drawing-{line});stroke-width:{width:g}"
    return f'style="{style}{";stroke-dasharray:4 3" if dashed else ""}"'


def figures(records: Path) -> dict[str, str]:
    """The figures as SVG, by file name.

    Args:
        records: The folder `docs/records`, from which numbers are taken.
    """
    names = ("nano_steps", "nano_headroom", "nano_trials")
    steps, rooms, tried = (json.loads((records / f"{name}.json").read_bytes()) for name in names)
    drawn = {"axes": axes(steps), "ranks": ranks(steps), "headroom": headroom(rooms), "trials": trials(tried)}
    return {f"{name}.svg": drawing.svg() for name, drawing in drawn.items()}


def _scores(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The methods of one task after the fewest steps."""
    return [row for row in record["scores"] if (row["task"], row["steps"]) == (_TASK, record["steps"][0])]


def axes(record: Mapping[str, Any]) -> Drawing:
    """For each method, the share of token-branches that it skips at one level of net FLOPs."""
    rows = sorted(_scores(record), key=lambda row: row["saved_tokens"])
    level, bottom = f"{100 * record['level']:g} %", 48 + 26 * len(rows)
    drawing = Drawing(
        430,
        bottom + 66,
        f"For each method, the share of token-branches it skips where it saves {level} of net FLOPs: between "
        f"{100 * rows[0]['saved_tokens']:.0f} % and {100 * rows[-1]['saved_tokens']:.0f} %.",
    )
    left, right = 178, 410

    def place(saved: float) -> float:
        return left + (right - left) * saved / 0.45

    drawing.text(place(record["level"]), 16, f"{level} net", "accent", anchor="middle", bold=True)
    drawing.columns({place(saved): f"{100 * saved:g}" for saved in (0, 0.1, 0.2, 0.3, 0.4)}, 28, bottom)
    for number, row in enumerate(rows):
        y, net, tokens = 44 + 26 * number, place(row["saved_net"]), place(row["saved_tokens"])
        drawing.text(left - 10, y + 4, row["method"], anchor="end", size=11.5)
        drawing.line([(net, y), (tokens, y)], "second", width=3)
        drawing.dot(net, y)
        drawing.dot(tokens, y, "second", hollow=True)
        drawing.text(tokens + 9, y + 4, f"{100 * row['saved_tokens']:.1f}", "second", size=11)
    drawing.text(right, bottom + 34, "saved, % of the dense model", "faint", anchor="end", size=11)
    drawing.dot(16, bottom + 52)
    drawing.text(26, bottom + 56, "net FLOPs, the axis that is matched", size=11)
    drawing.dot(258, bottom + 52, "second", hollow=True)
    drawing.text(268, bottom + 56, "token-branches", size=11)
    return drawing


def ranks(record: Mapping[str, Any]) -> Drawing:
    """Scores with intervals, beside the ranks that tests of all pairs leave open."""
    rows, which = sorted(_scores(record), key=lambda row: -row["score"]), (_TASK, record["steps"][0])
    (found,) = (one["methods"] for one in record["doublings"] if (one["task"], one["steps"]) == which)
    bottom = 46 + 26 * len(rows)
    drawing = Drawing(
        430,
        bottom + 40,
        "Left, scores of methods with 95 % intervals, best first. Right, the ranks that are left open: methods that "
        "no test tells apart share a stretch of ranks.",
    )
    left, middle, start, right = 178, 276, 318, 410

    def at(score: float) -> float:
        return left + (middle - left) * score

    def rank(number: float) -> float:
        return start + (right - start) * (number - 1) / (len(rows) - 1)

    drawing.text(left, 16, "score, %", "accent", bold=True)
    drawing.text(start - 6, 16, "rank", "second", bold=True)
    drawing.columns({at(score): f"{100 * score:g}" for score in (0, 0.5, 1)}, 26, bottom)
    drawing.columns({rank(number): str(number) for number in range(1, len(rows) + 1)}, 26, bottom)
    for number, row in enumerate(rows):
        y = 40 + 26 * number
        drawing.text(left - 10, y + 4, row["method"], anchor="end", size=11.5)
        drawing.line([(at(row["low"]), y), (at(row["high"]), y)], "accent", width=2)
        drawing.dot(at(row["score"]), y)
        low, high = found[row["method"]]["ranks"][0]
        drawing.box(rank(low) - 6, y - 6, rank(high) - rank(low) + 12, 12, "warm", "second")
    seeds, documents = rows[0]["seeds"], rows[0]["documents"]
    about = f"{seeds} seed{'s' if seeds > 1 else ''}, {documents} validation documents"
    about = f"{_TASK}, {100 * record['level']:g} % of net FLOPs saved, {about}"
    drawing.text(8, bottom + 34, about, "faint", size=11)
    return drawing


def headroom(record: Mapping[str, Any]) -> Drawing:
    """The best static sets and the attainable oracle over sets, by task and level, with their distance at 15 %."""
    drawing = Drawing(
        430,
        300,
        "Score against saved net FLOPs on two tasks: the best static sets of layers, and above or beside them the "
        "oracle that picks a set for every document. The distance at 15 % is the headroom, written with its interval.",
    )
    wide, top, bottom = 150, 56, 214
    for number, task in enumerate(record["tasks"][:2]):
        left = 52 + 212 * number
        levels = [one for one in task["levels"] if one["reached"]]
        last = max(one["level"] for one in levels)

        def place(saved: float, score: float, left: float = left, last: float = last) -> _Spot:
            return left + wide * saved / last, bottom - (bottom - top) * score

        drawing.text(left, 20, task["task"], bold=True)
        drawing.rows({place(0, score)[1]: f"{100 * score:g}" for score in (0, 0.5, 1)}, left, left + wide)
        for one in levels[1::2]:
            at = place(one["level"], 0)[0]
            drawing.text(at, bottom + 18, f"{100 * one['level']:g}", "faint", anchor="middle", size=11)
        for key, colour in (("static", "ink"), ("cross_fitted", "accent")):
            drawing.line([place(one["level"], one[key]) for one in levels], colour)
            for one in levels:
                drawing.dot(*place(one["level"], one[key]), colour, radius=3)
        (here,) = [one for one in levels if one["level"] == _LEVEL]
        drawing.line([place(_LEVEL, here[key]) for key in ("static", "cross_fitted")], "second", width=3)
        value, low, high = (f"{100 * here['headroom'][key]:+.1f}" for key in ("difference", "low", "high"))
        drawing.text(left, 40, f"{value} [{low}, {high}]", "second", bold=True)
    drawing.text(420, bottom + 38, "saved net FLOPs, % of the dense model", "faint", anchor="end", size=11)
    drawing.dot(16, 274, "accent")
    drawing.text(26, 278, "a set for each document (crossed)", size=11)
    drawing.dot(230, 274, "ink")
    drawing.text(240, 278, "the best sets for all", size=11)
    drawing.line([(12, 292), (20, 292)], "second", width=3)
    drawing.text(26, 296, "headroom at 15 %, in points", size=11)
    return drawing


def trials(record: Mapping[str, Any]) -> Drawing:
    """The score of each trial of a study, by method, and the one used after the best was trained again."""
    tried: dict[str, list[Mapping[str, Any]]] = {}
    for one in record["trials"]:
        if one["value"] is not None:
            tried.setdefault(one["method"], []).append(one)
    found = sorted(tried.items(), key=lambda item: -max(one["value"] for one in item[1]))
    bottom = 40 + 30 * len(found)
    drawing = Drawing(
        430,
        bottom + 82,
        "For each method, the objective of its five trials on validation documents. The best trial and the defaults "
        "were trained again with other seeds, and the better mean of the two is used on the board.",
    )
    left, right = 130, 414

    def place(value: float) -> float:
        return left + (right - left) * value

    drawing.columns({place(value): f"{value:g}" for value in (0, 0.25, 0.5, 0.75, 1)}, 22, bottom)
    confirmed = {(one["method"], one["number"] > 0): one["value"] for one in record["confirmed"]}
    for number, (method, some) in enumerate(found):
        y = 38 + 30 * number
        drawing.text(left - 12, y + 4, method, anchor="end", size=11.5)
        for one in sorted(some, key=lambda one: one["number"] == 0):  # the defaults on top
            if one["number"]:
                stopped = one["state"] == "pruned"
                drawing.dot(place(one["value"]), y, "faint" if stopped else "accent", radius=3.5)
            else:
                drawing.dot(place(one["value"]), y, "ink", hollow=True, radius=5)
        if (again := confirmed.get((method, record["best"][method] != method))) is not None:
            drawing.diamond(place(again), y)
    drawing.text(right, bottom + 34, "mean score over the levels, validation", "faint", anchor="end", size=11)
    drawing.dot(16, bottom + 52, "ink", hollow=True, radius=5)
    drawing.text(28, bottom + 56, "the method as it is", size=11)
    drawing.dot(160, bottom + 52, radius=3.5)
    drawing.text(170, bottom + 56, "another trial", size=11)
    drawing.dot(262, bottom + 52, "faint", radius=3.5)
    drawing.text(272, bottom + 56, "stopped by the median", size=11)
    drawing.diamond(16, bottom + 70)
    drawing.text(28, bottom + 74, "what stands, trained again with other seeds", size=11)
    return drawing
