"""Folders in which runs are looked for."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from adaptive_bench.errors import EnvironmentProblem, UsageError

DEFAULT_OUT = Path("runs")


def folders_in(home: Path) -> list[Path]:
    """What may be a folder in one; in what is none, or may not be read, nothing."""
    try:
        with os.scandir(home) as entries:
            return sorted(home / entry.name for entry in entries if not entry.name.startswith("."))
    except OSError:
        return []


def is_output(folder: Path) -> bool:
    """Whether runs are written into a folder: their records lie in it, and their tables. A folder where somebody keeps
    records of another kind beside the default output folder `runs` is none.
    """
    return _has_both(folder) and not _has_both(folder / "runs")


def _has_both(folder: Path) -> bool:
    return (folder / "records").is_dir() and (folder / "runs").is_dir()


def check_home(out: Path) -> None:
    """Refuse an output folder that no run can be written to or found in.

    Raises:
        UsageError: It is a part of another one.
        EnvironmentProblem: What has to be a folder in it is none, or may not be read.
    """
    for place in (out.absolute(), *out.absolute().parents):
        if place.name in ("runs", "records") and is_output(place.parent):
            raise UsageError(
                f"An output folder is no part of another one, got {str(out)!r}, which lies in {place.name!r} of "
                f"{str(place.parent)!r}. Give --out {place.parent}."
            )
    for shelf in (out / "runs", out / "records"):
        if shelf.exists() and not shelf.is_dir():
            raise EnvironmentProblem(
                f"Runs and records lie in folders, but {str(shelf)!r} is a file. Move it away, or name another folder "
                f"with --out."
            )
    check_listable(out)


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


def out_option(folder: Path) -> str:
    """The option that names the output folder which a folder is, or is a part of; empty where it is the default or
    none.
    """
    place = next((one for one in (folder.absolute(), *folder.absolute().parents) if is_output(one)), None)
    return "" if place in (None, DEFAULT_OUT.absolute()) else f" --out {shlex.quote(str(place))}"


def is_lost(path: Path) -> bool:
    """Whether a path is a link to what is not there, or one in a circle."""
    return path.is_symlink() and not path.exists()
