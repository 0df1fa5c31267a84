"""Finds runs by folder or name, knows the files in their folders, and gives the commands that write them again.

A run lies in `<out>/runs/<name>/`, and its records in `<out>/records/`. It is found without reading its files.
"""

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
LAST = "last"  # may be given in place of a name, for the run that was begun last
KEY_DIGITS = 8  # hexadecimal digits of a run's key at the end of its name
ENTRY = "points.parquet"  # marks the folder of an entry: a run passed on without records, whose table is computed
ENDED = ("table.json", "run.json")  # a run that has ended leaves both; if only one is there, the other was lost
# A run begins with the first two and ends with the third; any one marks a run, since others may have been lost.
BEGUN = ("config.yaml", "manifest.json", "run.json")
TABLES = ("table.json", "run.json", "answers.json", "methods.json")  # can be made again from the records
_MOST_NAMED = 5
_PUT_BACK = (
    "Put the run's own file back; or give `adaptive-bench run` the options that the run was made with: it writes the "
    "file again and computes nothing twice."
)


def is_output(folder: Path) -> bool:
    """Whether a folder is an output folder: it has both `records` and `runs`. A folder with other things in `records`
    beside the default output folder, which is also called `runs`, is not one.
    """

    def has_both(place: Path) -> bool:
        return (place / "records").is_dir() and (place / "runs").is_dir()

    return has_both(folder) and not has_both(folder / "runs")


def check_output(out: Path) -> None:
    """Refuse an output folder that was named but does not exist. The default folder may be missing, as it is before the
    first run.

    Raises:
        EnvironmentProblem: The folder is missing, or is not a folder.
    """
    if not out.is_dir() and (out.exists() or out != DEFAULT_OUT):
        what = "is no folder" if out.exists() else "does not exist"
        raise EnvironmentProblem(
            f"Runs are looked for in the folder that they were written to, but {str(out)!r} {what}. Correct --out."
        )


def find_run(text: str | Path, out: Path = DEFAULT_OUT) -> Path:
    """Find the folder of a run.

    Args:
        text: A folder; the name of a run; the beginning of its name or key, if that fits one run only; or `last`, the
            run that was begun last. Names in another output folder are given as `<folder>/<name>`, `<folder>/last`.
        out: Output folder in which a name alone is looked for. Only its folders of runs are searched.

    Raises:
        UsageError: No run has this name, or several have.
    """
    path = Path(text).expanduser()
    if path.is_dir():
        return path
    is_name = path.name == str(path)
    home = out if is_name else path.parent
    places = [home, home / "runs", *(inner / "runs" for inner in (_folders_in(home) if is_name else ()))]
    named = {folder: folder.name for folder in _begun(one for place in places for one in _folders_in(place))}
    exact = [folder for folder, name in named.items() if name == path.name]
    if path.name == LAST and named and not exact:
        return next(iter(named))
    found = exact or [folder for folder, name in named.items() if _is_called(name, path.name)]
    if len(found) == 1:
        return found[0]
    rule = (
        f"A run is named by its folder, its name, the beginning of its name or `last`, got {one_line(str(text), 100)!r}"
    )
    if found:
        names = ", ".join(map(run_name, found[:_MOST_NAMED])) + (", ..." if len(found) > _MOST_NAMED else "")
        raise UsageError(f"{rule}, which {len(found)} runs begin with: {names}. Give more of the name.")
    if path.exists():
        raise UsageError(f"{rule}, which is a file. `adaptive-bench list runs --out {home}` shows the runs.")
    close = difflib.get_close_matches(path.name, named.values(), n=1)
    there = f"`adaptive-bench list runs --out {home}` shows the runs." if named else "Give `adaptive-bench run` first."
    hint = f"Did you mean {close[0]!r}?" if close else there
    raise UsageError(f"{rule}, but there is no such folder and no such run in {str(home)!r}. {hint}")


def _folders_in(home: Path) -> list[Path]:
    """List what may be a folder in `home`; empty if that is no folder, is gone by now or may not be read."""
    try:
        with os.scandir(home) as entries:
            return sorted(home / entry.name for entry in entries if not entry.name.startswith("."))
    except OSError:
        return []


def _begun(folders: Iterable[Path]) -> list[Path]:
    """Return the folders that are runs, each once, the newest first."""
    found = {}
    for folder in folders:
        for name in BEGUN:
            with suppress(OSError):  # it is no folder, is gone by now, or may not be read
                found[folder] = (folder / name).stat().st_mtime
                break
    return sorted(found, key=lambda folder: found[folder], reverse=True)


def _is_called(name: str, text: str) -> bool:
    """Whether a run's name begins with a text, ends with it after a hyphen, or has a key that begins with it."""
    return name.startswith(text) or name.endswith(f"-{text}") or name.rpartition("-")[2].startswith(text)


def run_folders(out: Path) -> list[Path]:
    """List the runs that were begun in an output folder or anywhere below it, the newest first. Folders of records and
    folders that cannot be read are passed over.
    """
    return _begun(_with_file(out, *BEGUN))


def run_name(folder: Path) -> str:
    """Return the shortest text by which `find_run` finds a run: its name, after the output folder unless that is the
    default.
    """
    home = folder.parent.parent
    if folder.parent.name != "runs":
        return str(folder)
    return folder.name if home == DEFAULT_OUT else str(home / folder.name)


def quoted_name(folder: Path) -> str:
    """Return `run_name`, quoted for a shell."""
    return shlex.quote(run_name(folder))


def retry_command(folder: Path) -> str:
    """Return the command that continues a run."""
    return f"adaptive-bench retry {quoted_name(folder)}"


def tables(folder: Path) -> list[Path]:
    """List the table of a run's or entry's folder, or those of every ended run and every entry below a folder. The
    paths are given even if a table was lost: whoever reads it reports that.

    Raises:
        UsageError: There is neither a run nor an entry.
        EnvironmentProblem: There are runs, but none has ended.
    """
    found = [folder / "table.json"] if has_ended(folder) or is_entry(folder) else tables_below(folder)
    if found:
        return found
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
    """List the tables of every ended run and every entry below a folder; there may be none."""
    return [run / "table.json" for run in _with_file(folder, *ENDED, ENTRY)]


def newest(folder: Path) -> Path:
    """Return the table of the run below an output folder that ended last.

    Raises:
        EnvironmentProblem: No run has ended.
    """
    if not run_folders(folder) and not tables_below(folder):
        check_output(folder)
        raise EnvironmentProblem(
            f"There is no run in {str(folder)!r} yet. Give `adaptive-bench run` first, or name the output folder of "
            f"other runs with --out."
        )

    def ended_s(table: Path) -> float:  # if the table was lost, `run.json` may still be there
        return next((file.stat().st_mtime for name in ENDED if (file := table.with_name(name)).is_file()), 0.0)

    return max(tables(folder), key=ended_s)


def _with_file(above: Path, *names: str) -> list[Path]:
    """List the folders that hold a file with one of the names, sorted. The many records of an output folder are not
    searched, as they hold no run; folders that cannot be read are passed over. A link is followed if it is a run.
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


def is_entry(folder: Path) -> bool:
    """Whether a folder is an entry: the measurements of a run, passed on without its records."""
    return (folder / ENTRY).is_file()


def is_run(folder: Path) -> bool:
    """Whether a folder is a run, even if it lost its `config.yaml`."""
    return any((folder / name).is_file() for name in BEGUN)


def has_ended(folder: Path) -> bool:
    """Whether a folder has the `table.json` or the `run.json` of an ended run."""
    return any((folder / name).is_file() for name in ENDED)


def check_run(folder: Path) -> None:
    """Refuse a folder that is not a run.

    Raises:
        UsageError: It is another folder, or an entry.
    """
    refuse_entry(folder)
    if not is_run(folder):
        raise UsageError(
            f"A run is a folder with a config.yaml, its manifest.json and, once it has ended, its run.json, but "
            f"{str(folder)!r} has none of them. `adaptive-bench list runs` shows the runs."
        )


def refuse_entry(folder: Path) -> None:
    """Refuse an entry where a run with its records is needed; the message says what can be done with an entry."""
    if is_entry(folder):
        quoted = shlex.quote(str(folder))
        raise UsageError(
            f"A run has its records beside it, but {str(folder)!r} is an entry of a board. `adaptive-bench leaderboard "
            f"verify {quoted}` prints its table, `adaptive-bench leaderboard build {quoted}` makes its board, and "
            f"`adaptive-bench run --config {quoted}/config.yaml` is the run again."
        )


def output_of(run: Path) -> Path:
    """Return the output folder of a run, wherever the run lies by now. If the run was moved away from its records, its
    `config.yaml` says where they were.

    Raises:
        EnvironmentProblem: The `config.yaml` is damaged or missing.
    """
    home = run.resolve().parent.parent
    if (home / "records").is_dir():
        return home
    named = Path(config_in(run).get("out", DEFAULT_OUT))
    return home if run.resolve().parent.name == "runs" and not (named / "records").is_dir() else named


def plugins_in(folder: Path) -> list[Path]:
    """Return the plugin files that a run was made with, from its `command.json`; none if that file cannot be read,
    which `read_run` reports.
    """
    try:
        about = json.loads((folder / "command.json").read_text(encoding="utf-8"))
        return [Path(path) for path in about["plugins"]]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return []


def run_command(folder: Path, plugins: Iterable[Path] | None = None, directory: Path | None = None) -> str:
    """Return the command that repeats or continues a run where it lies now; for a moved run it has an `--out`.

    Args:
        plugins: Plugin files to name; by default those that the run was made with.
        directory: Directory in which the command will be given; by default the working directory.
    """
    named = plugins_in(folder) if plugins is None else plugins
    options = [part for path in named for part in ("--plugin", str(path))]
    home = folder.absolute().parent.parent
    if folder.parent.name == "runs":
        with suppress(AdaptiveBenchError, OSError):  # a config that cannot be read names no output folder
            written = (directory or Path.cwd()) / str(config_in(folder).get("out", DEFAULT_OUT))
            options += ["--out", str(home)] if written.resolve() != home.resolve() else []
    return shlex.join(["adaptive-bench", "run", "--config", str(folder / "config.yaml"), *options])


def config_in(folder: Path) -> dict[str, Any]:
    """Read the `config.yaml` of a run.

    Raises:
        EnvironmentProblem: The file is damaged or missing.
    """
    if not (folder / "config.yaml").is_file():
        raise EnvironmentProblem(
            f"A run is read by its config.yaml, but in {str(folder)!r} config.yaml is missing. {_PUT_BACK}"
        )
    try:
        return read_mapping(folder / "config.yaml")
    except UsageError as error:  # not the user's fault: the program wrote the file
        raise EnvironmentProblem(f"The config.yaml of a run is damaged. {error} {_PUT_BACK}") from error


def read_json(path: Path) -> Any:
    """Read a JSON file that a run wrote into its folder.

    Raises:
        EnvironmentProblem: The file cannot be read; the message gives the command that writes it again.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise unusable(path, f"cannot be read: {message_of(error)}") from error


def unusable(path: Path, why: str) -> EnvironmentProblem:
    """Return an error that says what is wrong with a file of a run, and which command writes it again from the records.

    Args:
        why: Predicate of the sentence whose subject is the file, such as `is missing`.
    """
    command = run_command(path.parent) + (" --table-only" if path.name in TABLES else "")
    return EnvironmentProblem(f"The file {str(path)!r} {why.rstrip('.')}. To write it again: `{command}`.")
