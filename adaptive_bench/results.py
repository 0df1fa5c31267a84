"""Finds and reads what runs leave behind, which may be damaged, half written or from somewhere else: the file is always
named.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_bench.digest import changed, unsealed
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, message_of, one_line
from adaptive_bench.strict_yaml import read_mapping
from adaptive_bench.tables.finished import files_of_runs

if TYPE_CHECKING:
    from pandas import DataFrame

# What every table needs of a row; newer rows have more.
_ROW = ("method", "semantics", "task", "metric", "axis", "level", "score", "low", "high", "status")
_RUN = ("methods", "tasks", "model", "seeds")
_MOST_NAMED = 5
DEFAULT_OUT = Path("runs")
PACKED_RECORDS = "records.tar.xz"  # of a run that is passed on (`runs.packing`)


def find_run(text: str | Path) -> Path:
    """The folder of a run: a folder, or a run's name, or the beginning of one or of its key if only one run has it.
    Runs are looked for in `runs`, those of another output folder as `<folder>/<name>`.

    Only where runs of an output folder lie is looked, whatever the folder holds beside them.

    Raises:
        UsageError: No run is called so, or several are.
    """
    path = _path(text)
    if path.exists():
        return path
    is_name = path.name == str(path)
    home = DEFAULT_OUT if is_name else path.parent
    named = {folder: folder.name for folder in _runs_of(home, deep=is_name)}
    exact = [folder for folder, name in named.items() if name == path.name]
    found = exact or [folder for folder, name in named.items() if _is_called(name, path.name)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(map(run_name, found[:_MOST_NAMED])) + (", ..." if len(found) > _MOST_NAMED else "")
    rule = f"A run is named by its folder, its name or the beginning of its name, got {one_line(str(text), 100)!r}"
    if found:
        raise UsageError(f"{rule}, which {len(found)} runs begin with: {names}. Give more of the name.")
    close = difflib.get_close_matches(path.name, named.values(), n=1)
    there = f"`adaptive-bench list runs --out {home}` shows the runs." if named else "Give `adaptive-bench run` first."
    hint = f"Did you mean {close[0]!r}?" if close else there
    raise UsageError(f"{rule}, but there is no such folder and no such run in {str(home)!r}. {hint}")


def _path(text: str | Path) -> Path:
    """A path that can be looked at; no file system has others.

    Raises:
        UsageError: It names a user who is not known, or is too long.
    """
    try:
        path = Path(text).expanduser()
        path.exists()
    except PermissionError:
        raise
    except (OSError, RuntimeError) as error:
        said = one_line(str(text), 100)
        raise UsageError(f"A run is named by its folder or its name, got {said!r}: {message_of(error)}") from error
    return path


def _runs_of(home: Path, *, deep: bool) -> list[Path]:
    """Runs of an output folder, and those in a folder of runs; the newest first.

    Args:
        deep: Those of output folders in it as well.
    """
    shelves = [home, home / "runs", *(inner / "runs" for inner in (_folders(home) if deep else ()))]
    return _begun([folder for shelf in dict.fromkeys(shelves) for folder in _folders(shelf)])


def _folders(home: Path) -> list[Path]:
    """What may be a folder in one; in what is none, or may not be read, nothing."""
    try:
        with os.scandir(home) as entries:
            return sorted(home / entry.name for entry in entries if not entry.name.startswith("."))
    except OSError:
        return []


def _begun(folders: Iterable[Path]) -> list[Path]:
    """Those of some folders that are runs, the newest first."""
    found = []
    for folder in folders:
        with suppress(OSError):  # it was no folder, is gone by now, or may not be read
            about = (folder / "config.yaml").stat()
            found.append((about.st_mtime, folder))
    return [folder for _, folder in sorted(found, key=lambda one: one[0], reverse=True)]


def _is_called(name: str, text: str) -> bool:
    """Whether a run's name begins with a text, or ends with it, or its key begins with it."""
    return name.startswith(text) or name.endswith(f"-{text}") or name.rpartition("-")[2].startswith(text)


def run_folders(out: Path) -> list[Path]:
    """Runs that were begun in an output folder, or somewhere below it; the newest first. What cannot be read has none,
    and among records nobody looks for runs.
    """
    return _begun(file.parent for file in files_of_runs(out, "config.yaml"))


def run_name(folder: Path) -> str:
    """The shortest text by which `find_run` finds a run: its name, with the output folder unless that is `runs`."""
    home = folder.parent.parent
    if folder.parent.name != "runs":
        return str(folder)
    return folder.name if home == DEFAULT_OUT else str(home / folder.name)


def read_json(path: Path) -> Any:
    """A JSON file.

    Raises:
        EnvironmentProblem: It cannot be read, or holds something else.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EnvironmentProblem(
            f"The file {str(path)!r} cannot be read: {message_of(error)}. Delete it and give the `run` that wrote it "
            f"again."
        ) from error


def read_table(path: Path) -> list[dict[str, Any]]:
    """The rows of a `table.json`.

    Raises:
        EnvironmentProblem: It cannot be read, or is no table.
    """
    check_unchanged(path)
    rows = read_json(path)
    if not isinstance(rows, list):
        raise _foreign(path, f"a list of rows, got {type(rows).__name__}")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise _foreign(path, f"rows with keys and values, got {type(row).__name__} as row {number}")
        if missing := [key for key in _ROW if key not in row]:
            raise _foreign(path, f"rows with {', '.join(_ROW)}, but row {number} has no {', '.join(missing)}")
        for key in ("level", "score", "low", "high"):
            if not isinstance(row[key], int | float) and (key == "level" or row[key] is not None):
                raise _foreign(path, f"numbers under {key!r}, got {one_line(repr(row[key]), 60)} in row {number}")
    return rows


def check_unchanged(table: Path) -> None:
    """Refuse a table of a run that is not what the run wrote. One that lies alone says nothing of its origin.

    Raises:
        EnvironmentProblem: It, or what the run says of itself, was changed.
    """
    run = table.with_name("run.json")
    if not run.is_file():
        return
    try:
        about = unsealed(run.read_bytes())
        different = changed(table.parent, {table.name: about["files"][table.name]})
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        if _is_of_first_version(run):
            return
        different = [run.name]
    if different:
        again = f"adaptive-bench run --config {table.with_name('config.yaml')} --table-only"
        raise EnvironmentProblem(
            f"A run's table stays as the run wrote it, but {different[0]} in {str(table.parent)!r} changed since. "
            f"Write it again from the records: `{again}`."
        )


def _is_of_first_version(run: Path) -> bool:
    """Whether a `run.json` is of a version that had no digests; the runs of today never say so."""
    about = read_json(run)
    return isinstance(about, dict) and about.get("schema", 1) == 1


def read_run(config: Path) -> dict[str, Any]:
    """A run's `config.yaml`, with what `command.json` says of its beginning and `run.json` of its end; of a damaged one
    only what is wrong.

    Args:
        config: The run's `config.yaml`.
    """
    try:
        about = read_mapping(config)
        for file in (config.with_name("command.json"), config.with_name("run.json")):
            if file.is_file():
                known = read_json(file)
                if not isinstance(known, dict):
                    raise _foreign(file, f"keys and values, got {type(known).__name__}")
                about |= known
        if missing := [key for key in _RUN if key not in about]:
            raise _foreign(config, f"a run's {', '.join(_RUN)}, but has no {', '.join(missing)}")
        if not all(isinstance(about.get(key, {}), dict) for key in ("train", "evaluation")):
            raise _foreign(config, "keys and values under `train` and `evaluation`")
    except AdaptiveBenchError as error:
        return {"state": "damaged", "problem": message_of(error)}
    return about


def load_results(*folders: Path | str, out: Path | str = "runs") -> DataFrame:
    """The rows of runs as one tidy frame: one row for each method, task, metric, axis, phase and level.

    Beside the columns of `table.json` it has `run` (its folder), `run_state`, `model` and `finished`.

    Args:
        folders: Of runs, or their names (see `find_run`); without any, every finished run in `out`.
        out: Where runs are looked for.

    Raises:
        EnvironmentProblem: There is no such run, or its table is damaged.
    """
    import pandas

    chosen = [find_run(folder) for folder in folders] or [
        file.parent for file in files_of_runs(Path(out), "table.json")
    ]
    if not chosen:
        raise EnvironmentProblem(
            f"There is no finished run in {str(out)!r}. Give `adaptive-bench run`, or name another folder."
        )
    rows = []
    for folder in chosen:
        if not (folder / "table.json").is_file():
            raise EnvironmentProblem(
                f"A finished run has a table.json, but there is none in {str(folder)!r}. `adaptive-bench list runs` "
                f"shows the runs; an unfinished one continues with `adaptive-bench retry {run_name(folder)}`."
            )
        about = read_run(folder / "config.yaml")
        same = {
            "run": str(folder),
            "run_state": about.get("state", "unfinished"),
            "model": about.get("model"),
            "finished": about.get("finished"),
        }
        rows += [same | row for row in read_table(folder / "table.json")]
    return pandas.DataFrame(rows)


def _foreign(path: Path, wanted: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"The file {str(path)!r} must hold {wanted}. It is damaged or not one of adaptive-bench's; name another folder."
    )
