"""Checks where a board may be written: files that are not a board's are neither overwritten nor mixed with it."""

from __future__ import annotations

from pathlib import Path

from adaptive_bench.errors import UsageError

INDEX = "board.json"  # lists the data files; a folder that has it is a board's
BOARD = "board"  # the board's folder inside a site of documentation


def check_place(folder: Path, option: str) -> None:
    """Refuse a folder in which a board would lie among foreign files.

    A new or empty folder is accepted, and one that holds an earlier board, alone or with its documentation. Hidden
    files are ignored: git and desktops leave them.

    Args:
        folder: The folder to write to.
        option: The option that named the folder, for the message.

    Raises:
        UsageError: The folder holds something else, or is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{option} is a folder for the board, but {str(folder)!r} is a file. Name another place.")
    if not folder.is_dir() or any((folder / inner / INDEX).is_file() for inner in ("", BOARD)):
        return
    if foreign := sorted(one.name for one in folder.iterdir() if not one.name.startswith(".")):
        raise UsageError(
            f"{option} is a new or empty folder, or one with an earlier board, but {str(folder)!r} holds something "
            f"else: {', '.join(foreign[:3])}{', ...' if len(foreign) > 3 else ''}. Name another folder with {option}."
        )
