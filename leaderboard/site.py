"""Writes a board as files: the page, Markdown, CSV and Parquet, all from the same rows."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.store import atomic, runs

from .frame import Board, read_board
from .groups import groups_of
from .markdown import written
from .page import ROWS, files_of
from .page.method_pages import Links
from .plain import cell

SCHEMA = 3
INDEX = "board.json"  # lists the data files; a folder that has it is a board's
_MOST_NAMED = 20  # refusals that an error names
LARGEST_PAGE_BYTES = 1_572_864  # 1.5 MiB


def build(
    tables: Sequence[Path],
    out: Path,
    *,
    strict: bool = False,
    one_file: bool = False,
    manual: str = "",
) -> list[str]:
    """Write a site.

    Args:
        tables: `table.json` files of runs. What is wrong in them is left out of the board and reported.
        out: The folder to write to.
        strict: Raise an error if something was refused, after the rest of the board is written.
        one_file: Write no pages of methods, so that `index.html` can be passed on alone.
        manual: Address of the documentation, absolute or relative to the page; without it the page has no link to it.

    Returns:
        Messages for the user, one sentence each.

    Raises:
        UsageError: The folder holds something other than a board.
        EnvironmentProblem: A strict build refused something.
    """
    _check_place(out)
    board = read_board(tables)
    said = list(board.problems)
    for name, content in downloads(board).items():
        atomic.write_bytes(out / name, content)
    pages = files_of(board, one_file=one_file, links=Links(manual))
    for name, text in pages.items():
        if (size := len(text.encode())) > LARGEST_PAGE_BYTES:
            said.append(
                f"{name} has {size / 2**20:.1f} MiB; pages of up to {LARGEST_PAGE_BYTES / 2**20:.1f} MiB open quickly "
                f"everywhere. Build a board of fewer runs."
            )
        atomic.write_text(out / name, text)
    atomic.write_text(out / "board.md", written(board))
    # Last, so that the rest of the board can be looked at.
    if strict and board.refused:
        raise EnvironmentProblem(
            f"A strict build takes every entry and row, but {len(board.refused)} of them are refused: "
            f"{' '.join(board.refused[:_MOST_NAMED])} Correct or remove them; the board of the rest is {str(out)!r}."
        )
    return said


def _check_place(folder: Path) -> None:
    """Refuse a folder in which a board would lie among foreign files; hidden ones of desktops do not count."""
    if (folder / INDEX).is_file():
        return
    inside = folder.iterdir() if folder.is_dir() else [folder] if folder.exists() else []
    if foreign := sorted(one.name for one in inside if not one.name.startswith(".")):
        raise UsageError(
            f"-o is a new or empty folder, or one with an earlier board, but {str(folder)!r} holds something else: "
            f"{', '.join(foreign[:3])}. Name another folder."
        )


def as_csv(lines: Sequence[Mapping[str, object]]) -> str:
    """Rows as CSV, in which no text can run as a formula."""
    return runs.as_csv([{key: cell(value) for key, value in line.items()} for line in lines])


def downloads(board: Board) -> dict[str, bytes]:
    """Data files by name: the rows of each model and recipe, and `INDEX`, which lists them and what was left out."""
    found: dict[str, bytes] = {}
    listed = []
    for group in groups_of(board):
        name = f"{ROWS}/{group.key}"
        found |= {
            f"{name}.csv.gz": _compressed(as_csv(group.board.lines)),
            f"{name}.parquet": runs.as_parquet(group.board.lines),
        }
        listed.append({"name": name, "model": group.name, "rows": len(group.board.rows)})
    index = {"schema": SCHEMA, "endings": [".csv.gz", ".parquet"], "files": listed, "problems": board.problems}
    # The index comes first, so that the next build recognises the folder of a build that was stopped.
    return {INDEX: (json.dumps(index, indent=1) + "\n").encode()} | found


def _compressed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)  # no date, so that the same rows give the same bytes
