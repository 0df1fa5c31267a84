"""Writes a board as files: the page, Markdown and Parquet, all from the same rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.store import atomic
from adaptive_bench.store.runs import as_parquet

from .frame import Board, read_board
from .groups import groups_of
from .markdown import written
from .page import ROWS, files_of
from .page.method_pages import Links
from .publish import BOARD

SCHEMA = 3
INDEX = "board.json"  # lists the data files; a folder that has it is a board's
_MOST_NAMED = 20  # refusals that an error names


def build(tables: Sequence[Path], out: Path, *, strict: bool = False, manual: str = "") -> list[str]:
    """Write a site.

    Args:
        tables: `table.json` files of runs. What is wrong in them is left out of the board and reported.
        out: The folder to write to.
        strict: Raise an error if something was refused, after the rest of the board is written.
        manual: Address of the documentation, absolute or relative to the page; without it the page has no link to it.

    Returns:
        Messages for the user, one sentence each.

    Raises:
        UsageError: The folder holds something other than a board.
        EnvironmentProblem: A strict build refused something.
    """
    _check_place(out)
    board = read_board(tables)
    for name, content in downloads(board).items():
        atomic.write_bytes(out / name, content)
    for name, text in files_of(board, Links(manual)).items():
        atomic.write_text(out / name, text)
    atomic.write_text(out / "board.md", written(board))
    # Last, so that the rest of the board can be looked at.
    if strict and board.refused:
        raise EnvironmentProblem(
            f"A strict build takes every entry and row, but {len(board.refused)} of them are refused: "
            f"{' '.join(board.refused[:_MOST_NAMED])} Correct or remove them; the board of the rest is {str(out)!r}."
        )
    return list(board.problems)


def _check_place(folder: Path) -> None:
    """Refuse a folder in which a board would lie among foreign files; hidden ones of desktops do not count."""
    # A board is in the folder itself, or in the folder `board` of a site of documentation.
    if any((folder / inner / INDEX).is_file() for inner in ("", BOARD)):
        return
    inside = folder.iterdir() if folder.is_dir() else [folder] if folder.exists() else []
    if foreign := sorted(one.name for one in inside if not one.name.startswith(".")):
        raise UsageError(
            f"-o is a new or empty folder, or one with an earlier board, but {str(folder)!r} holds something else: "
            f"{', '.join(foreign[:3])}. Name another folder."
        )


def downloads(board: Board) -> dict[str, bytes]:
    """Data files by name: the rows of each model and recipe, and `INDEX`, which lists them and what was left out."""
    found: dict[str, bytes] = {}
    listed = []
    for group in groups_of(board):
        name = f"{ROWS}/{group.key}"
        found[f"{name}.parquet"] = as_parquet(group.board.lines)
        listed.append({"name": name, "model": group.name, "rows": len(group.board.rows)})
    index = {"schema": SCHEMA, "endings": [".parquet"], "files": listed, "problems": board.problems}
    # The index comes first, so that the next build recognises the folder of a build that was stopped.
    return {INDEX: (json.dumps(index, indent=1) + "\n").encode()} | found
