"""The short form a run ends with: the first metric of each task, plain text."""

from __future__ import annotations

from collections.abc import Sequence

from .grid import Row, grids


def render(rows: Sequence[Row]) -> str:
    """Make the tables.

    Args:
        rows: The rows to show; the caller chooses the axis.
    """
    headline: dict[str, str] = {}
    for row in rows:
        headline.setdefault(row["task"], row["metric"])
    parts: list[str] = []
    for grid in grids(row for row in rows if row["metric"] == headline[row["task"]]):
        parts += [grid.title, grid.scores("simple"), *grid.notes]
        parts += ["measured saving, tokens / core / net (%)", grid.savings("simple")]
    return "\n\n".join(parts)
