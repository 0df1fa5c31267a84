"""The leaderboard as Markdown: every task, metric and axis of the rows, with the saving behind each score."""

from __future__ import annotations

from collections.abc import Sequence

from .grid import Row, grids

_LEGEND = (
    "Every column compares the methods where they save the same share of the dense model's compute; scores between two "
    "measured dial values are interpolated linearly, never extrapolated. `n/a`: the method does not reach this saving. "
    "`[low, high]`: 95 % interval."
)
_PARTIAL = "`*`: not every seed that was asked for is in this score."


def render(rows: Sequence[Row]) -> str:
    """Make the leaderboard.

    Args:
        rows: The rows of one or several `table.json`.
    """
    all_grids = grids(rows)
    parts = ["# Leaderboard", _LEGEND + (f" {_PARTIAL}" if any(grid.has_partial for grid in all_grids) else "")]
    for grid in all_grids:
        parts += [f"## {grid.title}", grid.scores("github")]
        parts += ["Measured saving, tokens / core FLOPs / net FLOPs (%):", grid.savings("github")]
    return "\n\n".join(parts) + "\n"
