"""Folders in which runs are looked for."""

from __future__ import annotations

import os
from pathlib import Path

from adaptive_bench.errors import EnvironmentProblem


def folders_in(home: Path) -> list[Path]:
    """What may be a folder in one; in what is none, or may not be read, nothing."""
    try:
        with os.scandir(home) as entries:
            return sorted(home / entry.name for entry in entries if not entry.name.startswith("."))
    except OSError:
        return []


def is_output(folder: Path) -> bool:
    """Whether runs are written into a folder: their records lie in it, and their tables."""
    return (folder / "records").is_dir() and (folder / "runs").is_dir()


def check_listable(home: Path) -> None:
    """Refuse an output folder of which nobody can tell which runs it has.

    Raises:
        EnvironmentProblem: It, or the folder of the runs in it, is there and may not be read.
    """
    for shelf in (home, home / "runs"):
        if shelf.is_dir() and not os.access(shelf, os.R_OK | os.X_OK):
            raise EnvironmentProblem(
                f"Runs are looked for in the folder {str(shelf)!r}, but it cannot be read: permission denied. Get "
                f"permission to read it, or name another folder with --out."
            )
