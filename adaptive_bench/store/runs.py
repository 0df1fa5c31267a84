"""Where runs lie, and what they are called: found by their folder or their name, without reading what they hold."""

from __future__ import annotations

import difflib
import json
import os
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, message_of, one_line
from adaptive_bench.strict_yaml import read_mapping

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


KEY_DIGITS = 8  # hexadecimal ones of a run's key, at the end of its name
ENTRY = "points.parquet"  # of a run that is passed on, whose table is computed from it
ENDED = ("table.json", "run.json")  # a run that has ended leaves both: where one is alone, the other was lost
# A run begins with the first two and ends with the third: any of them is left where another was lost.
BEGUN = ("config.yaml", "manifest.json", "run.json")
TABLES = ("table.json", "run.json", "answers.json", "methods.json")  # made of the records


def is_entry(folder: Path) -> bool:
    """Whether a folder is a run that is passed on: its measurements alone."""
    return (folder / ENTRY).is_file()


def check_run(folder: Path) -> None:
    """Refuse what is no run where one is needed.

    Raises:
        UsageError: It is another folder, or an entry.
    """
    refuse_entry(folder)
    if not is_run(folder):
        raise UsageError(
            f"A run is a folder with a config.yaml, its manifest.json and, once it has ended, its run.json, but "
            f"{str(folder)!r} has none of them. `adaptive-bench list runs{out_option(folder)}` shows the runs."
        )


def refuse_entry(folder: Path) -> None:
    """Refuse an entry where what lies beside a run is needed.

    Raises:
        UsageError: With what can be had of it.
    """
    if is_entry(folder):
        quoted = shlex.quote(str(folder))
        raise UsageError(
            f"A run has its records beside it, but {str(folder)!r} is an entry of a board. `adaptive-bench leaderboard "
            f"verify {quoted}` prints its table, `adaptive-bench leaderboard build {quoted}` makes its board, and "
            f"`adaptive-bench run --config {quoted}/config.yaml` is the run again."
        )


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, one that lost its `config.yaml` included."""
    return any((folder / name).is_file() for name in BEGUN)


def has_ended(folder: Path) -> bool:
    """Whether a folder has the table of a run, or what says how the run ended."""
    return any((folder / name).is_file() for name in ENDED)


def output_of(run: Path) -> Path:
    """The output folder of a run, wherever it lies by now; one that was moved away from its records is asked where they
    were.

    Raises:
        EnvironmentProblem: Its `config.yaml` is damaged, or not there.
    """
    home = run.resolve().parent.parent
    if (home / "records").is_dir():
        return home
    named = Path(config_in(run).get("out", DEFAULT_OUT))
    return home if run.resolve().parent.name == "runs" and not (named / "records").is_dir() else named


def plugins_in(folder: Path) -> list[Path]:
    """The plugin files that a run was made with, as its `command.json` says; none where that cannot be used, of which
    `read_run` says so.
    """
    try:
        about = json.loads((folder / "command.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    named = about.get("plugins") if isinstance(about, dict) else None
    return [Path(path) for path in named if isinstance(path, str)] if isinstance(named, list) else []


def run_command(folder: Path, plugins: Iterable[Path] | None = None, directory: Path | None = None) -> str:
    """The command that repeats a run, or goes on with it, where it lies now: a moved one is told so by `--out`.

    Args:
        plugins: Files to name; by default those that the run was made with.
        directory: Where the command is to be given; by default the working directory.
    """
    named = plugins_in(folder) if plugins is None else plugins
    options = [part for path in named for part in ("--plugin", str(path))]
    home = folder.absolute().parent.parent
    if folder.parent.name == "runs" and _written_out(folder, directory or Path.cwd()) not in (None, home.resolve()):
        options += ["--out", str(home)]
    return shlex.join(["adaptive-bench", "run", "--config", str(folder / "config.yaml"), *options])


def read_json(path: Path) -> Any:
    """A JSON file that a run wrote into its folder.

    Raises:
        EnvironmentProblem: It cannot be read; with the command that writes it again.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise unusable(path, f"cannot be read: {message_of(error)}") from error


def unusable(path: Path, why: str) -> EnvironmentProblem:
    """What is wrong with a file of a run, as an error with the command that writes it again from what is on disk.

    Args:
        why: Ends the sentence that the file begins, without a full stop.
    """
    command = run_command(path.parent) + (" --table-only" if path.name in TABLES else "")
    return EnvironmentProblem(f"The file {str(path)!r} {why.rstrip('.')}. To write it again: `{command}`.")


def _written_out(folder: Path, directory: Path) -> Path | None:
    """The output folder that a run's `config.yaml` names; `None` where it cannot be read."""
    try:
        return (directory / str(config_in(folder).get("out", DEFAULT_OUT))).resolve()
    except (AdaptiveBenchError, OSError):
        return None


def config_in(folder: Path) -> dict[str, Any]:
    """What the `config.yaml` of a run says.

    Raises:
        EnvironmentProblem: It is damaged, or not there.
    """
    if not (folder / "config.yaml").is_file():
        raise EnvironmentProblem(
            f"A run is what its config.yaml says, but in {str(folder)!r} config.yaml is missing. {_PUT_BACK}"
        )
    try:
        return read_mapping(folder / "config.yaml")
    except UsageError as error:  # nobody writes it by hand
        raise EnvironmentProblem(f"The config.yaml of a run is damaged. {error} {_PUT_BACK}") from error


_PUT_BACK = (
    "Put the run's own back; or give `adaptive-bench run` the options that the run was made with: it writes the file "
    "again and computes nothing twice."
)


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
