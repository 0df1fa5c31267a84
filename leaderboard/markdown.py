"""Writes the leaderboard as Markdown: for every model and level the headline, the list and its notes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from .frame import Board, read_board
from .groups import groups_of
from .headline import headline, is_real
from .plain import markdown
from .standing import Standing, standings
from .table_cells import COLUMNS, level_text, long, notes_of

_LONGEST = 4000  # characters of a sentence


def render(tables: Sequence[Path], failures: Sequence[str] = ()) -> str:
    """The leaderboard of one or several `table.json` files, with the work that failed and is missing in them."""
    return written(read_board(tables), failures)


def written(board: Board, failures: Sequence[str] = ()) -> str:
    """As `render`, from a board."""
    parts = ["# Leaderboard"]
    if failures:
        parts += ["**Incomplete.** These failed and are missing below, wholly or in part:"]
        parts += ["\n".join(f"* {markdown(' '.join(failure.split()), _LONGEST)}" for failure in failures)]
    for group in groups_of(board):
        parts += [part for one in standings(group.board) for part in section(group.name, one)]
    if board.problems:
        parts += ["## Left out", "\n".join(f"- {markdown(text, _LONGEST)}" for text in board.problems)]
    return "\n\n".join(parts) + "\n"


def section(name: str, standing: Standing) -> list[str]:
    """The paragraphs of one model at one level."""
    said = [markdown(text, _LONGEST) for text in (headline(standing), is_real(standing)) if text]
    notes = "\n".join(f"- {markdown(note, _LONGEST)}" for note in (*notes_of(standing), COLUMNS))
    return [f"## {markdown(name)}: {markdown(level_text(standing))}", *said, as_table(*long(standing)), notes]


def as_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table that shows its texts literally."""
    body = [[markdown(text, _LONGEST) for text in line] for line in lines]
    # Without numparse: tabulate would write `1.50` as `1.5` and align by the point.
    return tabulate(body, [markdown(text) for text in header], tablefmt="github", disable_numparse=True)
