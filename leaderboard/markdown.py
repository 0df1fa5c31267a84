"""The leaderboard as Markdown: every task, metric, axis and phase of the rows, with the saving behind each score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .grid import grids
from .row import Row

LEGEND = (
    "Every column compares the methods where they save the same share of the dense model's compute; scores between two "
    "measured dial values are interpolated linearly, never extrapolated. `n/a`: the method does not reach this saving. "
    "`[low, high]`: 95 % interval, over seeds and documents; of one seed, over documents alone."
)
_MOST_METHODS = 200  # with details of each
_SAVED_THERE = "Saved there, in % of the dense model; what a token costs there; kept: % of the dense score."
_RANKS = (
    "Ranks that tests of all pairs leave open (family-wise error rate 5 %, Holm): behind everyone who is certainly "
    "better, before everyone who is certainly worse:"
)


def render(rows: Iterable[Mapping[str, Any]], failures: Sequence[str] = ()) -> str:
    """The leaderboard of the rows of one or several `table.json`."""
    return written(map(Row.of, rows), failures)


def written(rows: Iterable[Row], failures: Sequence[str] = ()) -> str:
    """Make the leaderboard.

    Args:
        failures: Work of the run that could not be done, and why: what is missing in the tables.
    """
    parts = ["# Leaderboard", LEGEND]
    if failures:
        parts += ["**Incomplete.** These failed and are missing below, wholly or in part:"]
        parts += ["\n".join(f"* {' '.join(failure.split())}" for failure in failures)]
    for grid in grids(rows):
        parts += [f"## {grid.title}", grid.scores("github"), *grid.notes]
        if ranks := grid.ranks:
            parts += [f"{_RANKS}\n\n{ranks}"]
        if len(grid.methods) > _MOST_METHODS:
            parts.append("What was saved at every score is in the CSV: it would make this page unreadable.")
            continue
        parts += [_SAVED_THERE, grid.details("github")]
        training = grid.training("github")
        parts += ["Training:", training] if training else []
    return "\n\n".join(parts) + "\n"
