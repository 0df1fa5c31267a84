"""Drawings as SVG, the same byte for byte wherever they are made, in colours for a light and a dark page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

# Contrast to `paper` of everything that is written in is at least 4.5 (WCAG 1.4.3); a test holds that.
LIGHT: Mapping[str, str] = {
    "paper": "#ffffff",
    "ink": "#1f2937",
    "faint": "#5b6472",
    "rule": "#c4cad4",
    "accent": "#3949ab",
    "second": "#a14a05",
    "soft": "#dfe3f6",
    "warm": "#fbe5cc",
}
DARK: Mapping[str, str] = {
    "paper": "#1e2129",
    "ink": "#e5e7eb",
    "faint": "#a8b0be",
    "rule": "#4b5365",
    "accent": "#a5b0ff",
    "second": "#f3b25f",
    "soft": "#343c68",
    "warm": "#57411f",
}
WRITTEN_IN = ("ink", "faint", "accent", "second")
FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
CLASS = "drawing"


def colours(palette: Mapping[str, str]) -> str:
    """A palette as CSS declarations."""
    return "".join(f"--drawing-{name}:{value};" for name, value in palette.items())


class Drawing:
    """Shapes on a sheet of `width` x `height` units; x to the right, y down, letters of 12 units unless told otherwise.

    Colours are names of the palettes. `title` says what is seen, for those who do not see it.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height = width, height
        self._title = title
        self._parts: list[str] = []

    def box(
        self, x: float, y: float, width: float, height: float, fill: str | None = None, line: str | None = "ink",
        *, dashed: bool = False,
    ) -> None:  # fmt: skip
        """A rectangle from its upper left corner."""
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3"'
        self._parts.append(f"<rect {place} {_look(fill, line, dashed)}/>")

    def line(
        self, points: Sequence[tuple[float, float]], colour: str = "ink", *, width: float = 1.5, dashed: bool = False,
        arrow: bool = False,
    ) -> None:  # fmt: skip
        """Straight lines through points; with an arrow's head at the last one, which is reached from above."""
        where = " ".join(f"{x:.4g},{y:.4g}" for x, y in points)
        self._parts.append(f'<polyline points="{where}" {_look(None, colour, dashed, width)}/>')
        if arrow:
            x, y = points[-1]
            head = f"{x - 4:g},{y - 7:g} {x:g},{y:g} {x + 4:g},{y - 7:g}"
            self._parts.append(f'<polygon points="{head}" {_look(colour, None)}/>')

    def dot(self, x: float, y: float, colour: str = "accent", *, hollow: bool = False, radius: float = 4) -> None:
        """A circle around a point."""
        fill = "paper" if hollow else colour
        self._parts.append(f'<circle cx="{x:.4g}" cy="{y:.4g}" r="{radius:g}" {_look(fill, colour)}/>')

    def diamond(self, x: float, y: float, colour: str = "second") -> None:
        """A mark for what was not measured itself."""
        corners = f"{x:.4g},{y - 7:.4g} {x + 7:.4g},{y:.4g} {x:.4g},{y + 7:.4g} {x - 7:.4g},{y:.4g}"
        self._parts.append(f'<polygon points="{corners}" {_look("paper", colour, width=2)}/>')

    def text(
        self, x: float, y: float, words: str, colour: str = "ink", *, anchor: str = "start", size: float = 12,
        bold: bool = False,
    ) -> None:  # fmt: skip
        """One line of text on the base line y; `anchor` is `start`, `middle` or `end`."""
        weight = ' font-weight="600"' if bold else ""
        place = f'x="{x:.4g}" y="{y:.4g}" text-anchor="{anchor}" font-size="{size:g}"{weight}'
        self._parts.append(f'<text {place} style="fill:var(--drawing-{colour})">{escape(words)}</text>')

    def svg(self) -> str:
        """The file: readable by itself, on its own paper, in the reader's light or dark setting."""
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


def _look(fill: str | None, line: str | None, dashed: bool = False, width: float = 1.2) -> str:
    inside = "none" if fill is None else f"var(--drawing-{fill})"
    style = f"fill:{inside}"
    if line is not None:
        style += f";stroke:var(--drawing-{line});stroke-width:{width:g}"
    return f'style="{style}{";stroke-dasharray:4 3" if dashed else ""}"'
