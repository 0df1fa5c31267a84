"""`leaderboard paper`: a table of the paper beside ours, as lines for a terminal, as Markdown or as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adaptive_bench.errors import UsageError

from .agreement import commands_of, groups_of, said_of
from .beside import Beside, beside, numbers
from .frame import Board, read_board
from .provenance import variants_of
from .tables import NONE


def paper_beside(tables: Sequence[Path], number: int) -> tuple[list[dict[str, Any]], list[str]]:
    """A table of the paper beside every model of some runs, as plain values: `table`, `caption`, `source`, `model`,
    `columns`, `groups` of them (`name`, `first`, `columns`), `rows` (`name`, `label`, and of each column `theirs` and
    `ours` as texts), `said` and `commands`. And what was left out of the board, one sentence each.

    Args:
        tables: `table.json` of runs; without any the paper stands alone.
        number: Of the paper's table.

    Raises:
        UsageError: The paper has no such table.
    """
    if number not in numbers():
        raise UsageError(f"The paper's tables are {', '.join(map(str, numbers()))}, got {number}.")
    board = read_board(tables) if tables else None
    return beside_board(board, number), list(board.problems) if board else []


def beside_board(board: Board | None, number: int) -> list[dict[str, Any]]:
    """As `paper_beside`, of a board that was read before."""
    found = beside(board.rows if board else (), number, variants_of(board.folders) if board else None)
    return [_plain(one) for one in found]


def contents() -> list[dict[str, str]]:
    """Every table with what makes it."""
    return [
        {"table": str(one.table["table"]), "about": one.table["caption"], "commands": commands_of(one)}
        for number in numbers()
        for one in beside([], number)
    ]


def _plain(found: Beside) -> dict[str, Any]:
    return {
        "table": found.table["table"],
        "caption": found.table["caption"],
        "source": found.table["source"],
        "model": found.model,
        "columns": list(found.columns),
        "groups": [
            {"name": name, "first": places.start, "columns": [found.table["columns"][place] for place in places]}
            for name, places in groups_of(found)
        ],
        "rows": [
            {
                "name": line.name,
                "label": line.label,
                "theirs": [text or NONE for text in line.shown],
                "ours": [NONE if value is None else value.shown for value in line.ours],
            }
            for line in found.lines
        ],
        "said": said_of(found),
        "commands": commands_of(found),
    }
