"""Which folders a board may be written to: what somebody else keeps in one is neither overwritten nor mixed with it."""

from __future__ import annotations

from pathlib import Path

from adaptive_bench.errors import UsageError

INDEX = "board.json"  # lists the data files; a folder with it is known as a board's
BOARD = "board"  # where the board lies beside the documentation


def check_place(folder: Path, option: str) -> None:
    """Refuse a folder that a board would share with foreign files. One that is new or empty will do, and one that holds
    an earlier board, alone or beside its documentation; hidden files are those of git and of desktops.

    Args:
        option: That named the folder.

    Raises:
        UsageError: It holds something else, or is a file.
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
