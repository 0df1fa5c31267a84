"""Draws small line plots as SVG text: a few lines with markers and axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 340, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 16, 52, 44
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#666666")  # colour-blind readers can tell them apart
_FONT = 'font-family="sans-serif" font-size="11" fill="#333333"'

Line = Sequence[tuple[float, float]]


def plot(title: str, x_name: str, y_name: str, lines: Mapping[str, Line], *, base: float) -> str:
    """One plot, as the inside of an SVG of `WIDTH` x `HEIGHT`.

    The x axis has one place for each value that occurs, evenly spaced, because sizes double from one to the next.

    Args:
        title: Title of the plot.
        x_name, y_name: Names of the axes.
        lines: Points by the name of the line.
        base: Height of the dashed line that marks "no difference".
    """
    values = sorted({x for line in lines.values() for x, _ in line})
    heights = [y for line in lines.values() for _, y in line] + [base]
    step = _step(max(heights) - min(heights))
    low, high = int(min(heights) // step) * step, -int(-max(heights) // step) * step
    high = high if high > low else low + step

    def x_at(value: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (values.index(value) + 0.5) / len(values)

    def y_at(value: float) -> float:
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (high - value) / (high - low)

    parts = [f'<text x="{_LEFT}" y="16" {_FONT} font-weight="bold">{escape(title)}</text>']
    for number in range(round((high - low) / step) + 1):
        level = low + number * step
        parts.append(_rule(y_at(level), "#e5e5e5"))
        parts.append(f'<text x="{_LEFT - 6}" y="{y_at(level) + 4:.1f}" {_FONT} text-anchor="end">{level:.3g}</text>')
    parts.append(_rule(y_at(base), "#888888", dashed=True))
    for value in values:
        place = f'x="{x_at(value):.1f}" y="{HEIGHT - _BOTTOM + 16}"'
        parts.append(f'<text {place} {_FONT} text-anchor="middle">{value:g}</text>')
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 8}" {_FONT} text-anchor="middle">{escape(x_name)}</text>')
    middle = (HEIGHT + _TOP - _BOTTOM) / 2
    turned = f'transform="rotate(-90 12 {middle:.0f})" text-anchor="middle"'
    parts.append(f'<text x="12" y="{middle:.0f}" {_FONT} {turned}>{escape(y_name)}</text>')
    legend_x = float(_LEFT)
    for (name, line), colour in zip(lines.items(), _COLOURS, strict=False):
        points = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in sorted(line))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x_at(x):.1f}" cy="{y_at(y):.1f}" r="3" fill="{colour}"/>' for x, y in line]
        parts.append(f'<circle cx="{legend_x + 4:.1f}" cy="32" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{legend_x + 12:.1f}" y="36" {_FONT}>{escape(name)}</text>')
        legend_x += 24 + 6.2 * len(name)
    return "\n".join(parts)


def grid(plots: Sequence[str], columns: int = 2) -> str:
    """Several plots as one SVG file."""
    rows = -(-len(plots) // columns)
    size = f'width="{WIDTH * columns}" height="{HEIGHT * rows}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', '<rect width="100%" height="100%" fill="white"/>']
    for number, inside in enumerate(plots):
        row, column = divmod(number, columns)
        parts.append(f'<g transform="translate({column * WIDTH} {row * HEIGHT})">\n{inside}\n</g>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _rule(height: float, colour: str, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{height:.1f}" y2="{height:.1f}" stroke="{colour}"{dashes}/>'


def _step(reach: float) -> float:
    """A round step that divides a range into about four."""
    wanted = max(reach, 1e-6) / 4
    power = 10.0 ** (len(f"{int(wanted)}") - 1) if wanted >= 1 else 0.001
    while power * 10 <= wanted:
        power *= 10
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= wanted)
