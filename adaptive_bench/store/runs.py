"""Where runs lie, and what they are called: found by their folder or their name, without reading what they hold."""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from adaptive_bench.errors import EnvironmentProblem, UsageError, one_line
from adaptive_bench.store.run_files import BEGUN, ENDED, ENTRY, has_ended, is_entry
from adaptive_bench.store.shelves import DEFAULT_OUT, check_home, check_listable, folders_in, is_lost

LAST = "last"  # stands for the name of the run that was begun last
_MOST_NAMED = 5


def find_run(text: str | Path, out: Path = DEFAULT_OUT) -> Path:
    """The folder of a run: a folder, or a run's name, or the beginning of one or of its key if only one run has it; or
    `last`, the run that was begun last. Those of another output folder are `<folder>/<name>` and `<folder>/last` too.

    Only where runs of an output folder lie is looked, whatever the folder holds beside them.

    Args:
        out: Where runs are looked for by a name alone.

    Raises:
        UsageError: No run is called so, or several are.
    """
    path = Path(text).expanduser()
    if path.is_dir():
        return path
    is_name = path.name == str(path)
    home = out if is_name else path.parent
    named = {folder: folder.name for folder in _runs_of(home, deep=is_name)}
    exact = [folder for folder, name in named.items() if name == path.name]
    if path.name == LAST and named and not exact:
        return next(iter(named))
    found = exact or [folder for folder, name in named.items() if _is_called(name, path.name)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(map(run_name, found[:_MOST_NAMED])) + (", ..." if len(found) > _MOST_NAMED else "")
    rule = (
        f"A run is named by its folder, its name, the beginning of its name or `last`, got {one_line(str(text), 100)!r}"
    )
    if found:
        raise UsageError(f"{rule}, which {len(found)} runs begin with: {names}. Give more of the name.")
    check_listable(home)
    if path.exists():
        raise UsageError(f"{rule}, which is a file. `adaptive-bench list runs --out {home}` shows the runs.")
    if (lost := next(filter(is_lost, (home / path.name, home / "runs" / path.name)), None)) is not None:
        raise UsageError(
            f"{rule}, and {str(lost)!r} is a link that leads nowhere. Remove it, or put back what it led to."
        )
    close = difflib.get_close_matches(path.name, named.values(), n=1)
    there = f"`adaptive-bench list runs --out {home}` shows the runs." if named else "Give `adaptive-bench run` first."
    hint = f"Did you mean {close[0]!r}?" if close else there
    raise UsageError(f"{rule}, but there is no such folder and no such run in {str(home)!r}. {hint}")


def _runs_of(home: Path, *, deep: bool) -> list[Path]:
    """Runs of an output folder, and those in a folder of runs; the newest first.

    Args:
        deep: Those of output folders in it as well.
    """
    shelves = [home, home / "runs", *(inner / "runs" for inner in (folders_in(home) if deep else ()))]
    return _begun([folder for shelf in dict.fromkeys(shelves) for folder in folders_in(shelf)])


def _begun(folders: Iterable[Path]) -> list[Path]:
    """Those of some folders that are runs, the newest first."""
    found = []
    for folder in folders:
        for name in BEGUN:
            with suppress(OSError):  # it was no folder, is gone by now, or may not be read
                found.append(((folder / name).stat().st_mtime, folder))
                break
    return [folder for _, folder in sorted(found, key=lambda one: one[0], reverse=True)]


def _is_called(name: str, text: str) -> bool:
    """Whether a run's name begins with a text, or ends with it, or its key begins with it."""
    return name.startswith(text) or name.endswith(f"-{text}") or name.rpartition("-")[2].startswith(text)


def check_output(out: Path) -> None:
    """Refuse an output folder that was named and is not there; before the first run the default one is not.

    Raises:
        EnvironmentProblem: It is missing, no folder, or may not be read.
    """
    check_home(out)
    if not out.is_dir() and (out.exists() or out != DEFAULT_OUT):
        what = "is no folder" if out.exists() else "does not exist"
        raise EnvironmentProblem(
            f"Runs are looked for in the folder that their --out was, but {str(out)!r} {what}. Correct --out."
        )


def run_folders(out: Path) -> list[Path]:
    """Runs that were begun in an output folder, or somewhere below it; the newest first. What cannot be read has none,
    and among records nobody looks for runs.
    """
    return _begun(folders_of_runs(out, *BEGUN))


def run_name(folder: Path) -> str:
    """The shortest text by which `find_run` finds a run: its name, with the output folder unless that is `runs`."""
    home = folder.parent.parent
    if folder.parent.name != "runs":
        return str(folder)
    return folder.name if home == DEFAULT_OUT else str(home / folder.name)


def quoted_name(folder: Path) -> str:
    """As `run_name`, as a shell takes it."""
    return shlex.quote(run_name(folder))


def retry_command(folder: Path) -> str:
    """The command that goes on with a run."""
    return f"adaptive-bench retry {quoted_name(folder)}"


def tables(folder: Path) -> list[Path]:
    """The tables of a run's folder, or of every run below a folder that has ended: one that is gone by now as well,
    which whoever reads it says.

    Raises:
        UsageError: There is neither a run nor an entry.
        EnvironmentProblem: There are runs, but none has ended.
    """
    found = [folder / "table.json"] if has_ended(folder) or is_entry(folder) else tables_below(folder)
    if found:
        return found
    check_listable(folder)
    if not (begun := run_folders(folder)):
        raise UsageError(
            f"A board is made of runs, which have a config.yaml, and entries, which have a {ENTRY}, but in "
            f"{str(folder)!r} there is neither. `adaptive-bench list runs` shows the runs; `adaptive-bench run` makes "
            f"the first."
        )
    raise EnvironmentProblem(
        f"A run leaves its table.json when it ends, but none in {str(folder)!r} has ended. `"
        f"{retry_command(begun[0])}` goes on with the newest."
    )


def tables_below(folder: Path) -> list[Path]:
    """As `tables`, of every run below a folder; there may be none."""
    return [run / "table.json" for run in folders_of_runs(folder, *ENDED, ENTRY)]


def folders_of_runs(above: Path, *names: str) -> list[Path]:
    """Folders with a file of one of some names, in order; not among the records of an output folder, which are many and
    hold no run, nor where nothing can be read. Links are followed where they are runs.
    """
    found: list[Path] = []
    for place, below, files in os.walk(above):
        if not set(names).isdisjoint(files):
            found.append(Path(place))
        if Path(place).name == "runs":  # a run that was moved to another disk
            links = (Path(place, one) for one in below if Path(place, one).is_symlink())
            found += (link for link in links if any((link / name).is_file() for name in names))
        below[:] = [one for one in below if not (one == "records" and "runs" in below)]
    return sorted(found)


def newest(folder: Path) -> Path:
    """The table of the run below an output folder that ended last.

    Raises:
        EnvironmentProblem: None has.
    """
    if not run_folders(folder) and not tables_below(folder):
        check_output(folder)
        raise EnvironmentProblem(
            f"There is no run in {str(folder)!r} yet. Give `adaptive-bench run` first, or name the folder that its "
            f"--out was with --out."
        )
    return max(tables(folder), key=_ended_s)


def _ended_s(table: Path) -> float:
    """When a table was written; of one that is gone when the run said that it ended, of which only its name may be
    left.
    """
    return next((file.stat().st_mtime for name in ENDED if (file := table.with_name(name)).is_file()), 0.0)
