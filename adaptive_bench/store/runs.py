"""Finds runs by folder or name, and reads the files in their folders, also as rows for other programs.

A run lies in `<out>/runs/<name>/`, and its records in `<out>/records/`. It is found without reading its files.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import os
import shlex
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, message_of, one_line
from adaptive_bench.store import atomic
from adaptive_bench.validation import read_mapping

if TYPE_CHECKING:
    from pandas import DataFrame

Rows = Sequence[Mapping[str, Any]]

DEFAULT_OUT = Path("runs")
LAST = "last"  # may be given in place of a name, for the run that was begun last
KEY_DIGITS = 8  # hexadecimal digits of a run's key at the end of its name
ENTRY = "points.parquet"  # marks the folder of an entry: a run passed on without records, whose table is computed
BEGUN, ENDED = "config.yaml", "run.json"  # the first and the last file that a run writes
_MOST_NAMED = 5


def is_output(folder: Path) -> bool:
    """Whether a folder is an output folder: it has both `records` and `runs`. A folder with other things in `records`
    beside the default output folder, which is also called `runs`, is not one.
    """

    def has_both(place: Path) -> bool:
        return (place / "records").is_dir() and (place / "runs").is_dir()

    return has_both(folder) and not has_both(folder / "runs")


def check_output(out: Path) -> None:
    """Refuse an output folder that does not exist."""
    if not out.is_dir() and out != DEFAULT_OUT:  # which is missing before the first run
        raise EnvironmentProblem(
            f"Runs are looked for in the folder that they were written to, but {str(out)!r} does not exist. Correct "
            f"--out."
        )


def find_run(text: str | Path, out: Path = DEFAULT_OUT) -> Path:
    """Find the folder of a run.

    Args:
        text: A folder; the name of a run; the beginning of its name or key, if that fits one run only; or `last`, the
            run that was begun last. Names in another output folder are given as `<folder>/<name>`, `<folder>/last`.
        out: Output folder in which a name alone is looked for.

    Raises:
        UsageError: No run has this name, or several have.
    """
    path = Path(text).expanduser()
    if path.is_dir():
        return path
    # A name alone is looked for in `out`; `<folder>/<name>` in that folder, which may be `runs` itself.
    home, name = out if path.name == str(path) else path.parent, path.name
    known = _begun(one for place in (home, home / "runs") if place.is_dir() for one in place.iterdir())
    exact = [folder for folder in known if folder.name == name]
    if name == LAST and known and not exact:  # unless a run has that name
        return known[0]
    found = exact or [folder for folder in known if _is_called(folder.name, name)]
    if len(found) == 1:
        return found[0]
    given = one_line(str(text), 100)
    rule = f"A run is named by its folder, its name, the beginning of its name or `last`, got {given!r}"
    if found:
        names = ", ".join(map(run_name, found[:_MOST_NAMED]))
        raise UsageError(f"{rule}, which {len(found)} runs begin with, such as {names}. Give more of the name.")
    close = difflib.get_close_matches(name, [one.name for one in known], n=1)
    there = f"`adaptive-bench list runs --out {home}` shows the runs." if known else "Give `adaptive-bench run` first."
    hint = f"Did you mean {close[0]!r}?" if close else there
    raise UsageError(f"{rule}, but there is no such folder and no such run in {str(home)!r}. {hint}")


def _begun(folders: Iterable[Path]) -> list[Path]:
    """Return the folders that are runs, each once, the newest first."""
    found: dict[Path, float] = {}
    for folder in folders:
        with suppress(OSError):  # it may not be read, or has just been removed
            if not folder.name.startswith("."):
                found[folder] = (folder / BEGUN).stat().st_mtime
    return sorted(found, key=lambda folder: (-found[folder], folder))


def _is_called(name: str, text: str) -> bool:
    """Whether a run's name begins with a text, ends with it after a hyphen, or has a key that begins with it."""
    return name.startswith(text) or name.endswith(f"-{text}") or name.rpartition("-")[2].startswith(text)


def run_folders(out: Path) -> list[Path]:
    """List the runs that were begun in an output folder or anywhere below it, the newest first."""
    return _begun(_with_file(out, BEGUN))


def run_name(folder: Path) -> str:
    """Return the shortest text by which `find_run` finds a run."""
    home = folder.parent.parent
    if folder.parent.name != "runs":
        return str(folder)
    return folder.name if home == DEFAULT_OUT else str(home / folder.name)


def retry_command(folder: Path) -> str:
    """Return the command that continues a run, or writes its files again from its records."""
    return f"adaptive-bench retry {shlex.quote(run_name(folder))}"


def run_command(folder: Path, plugins: Iterable[Path]) -> str:
    """Return the command that makes a run, with the plugin files that it needs."""
    options = [part for path in plugins for part in ("--plugin", str(path))]
    return shlex.join(["adaptive-bench", "run", "--config", str(folder / "config.yaml"), *options])


def tables(folder: Path) -> list[Path]:
    """List the table of a run or an entry, or those of every ended run and every entry below a folder. The paths are
    given even if a table was lost: whoever reads it reports that.

    Raises:
        UsageError: There is neither a run nor an entry.
        EnvironmentProblem: There are runs, but none has ended.
    """
    found = [folder / "table.json"] if (folder / ENDED).is_file() or is_entry(folder) else tables_below(folder)
    if found:
        return found
    rule = f"Tables are of runs that have ended and of entries, but in {str(folder)!r} there is neither."
    if begun := run_folders(folder):
        raise EnvironmentProblem(f"{rule} `{retry_command(begun[0])}` goes on with the newest run.")
    raise UsageError(f"{rule} `adaptive-bench list runs` shows the runs; `adaptive-bench run` makes one.")


def tables_below(folder: Path) -> list[Path]:
    """List the tables of every ended run and every entry below a folder; there may be none."""
    return [run / "table.json" for run in _with_file(folder, ENDED, ENTRY)]


def newest(folder: Path) -> Path:
    """Return the table of the run below an output folder that ended last."""
    check_output(folder)
    try:
        found = tables(folder)
    except UsageError as error:  # no run was named, so the command is not wrong
        raise EnvironmentProblem(
            f"There is no run in {str(folder)!r} yet. Give `adaptive-bench run` first, or name the output folder of "
            f"other runs with --out."
        ) from error
    return max(found, key=lambda table: table.stat().st_mtime if table.is_file() else 0.0)


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
        # In place, because `os.walk` goes on with what is left in this list.
        below[:] = [one for one in below if not (one == "records" and "runs" in below)]
    return sorted(found)


def is_entry(folder: Path) -> bool:
    """Whether a folder is an entry: the measurements of a run, passed on without its records."""
    return (folder / ENTRY).is_file()


def is_run(folder: Path) -> bool:
    """Whether a folder is a run."""
    return (folder / BEGUN).is_file()


def check_run(folder: Path) -> None:
    """Refuse a folder that is an entry or anything else but a run."""
    if is_entry(folder):
        quoted = shlex.quote(str(folder))
        raise UsageError(
            f"A run has its records beside it, but {str(folder)!r} is an entry of a board. `adaptive-bench leaderboard "
            f"verify {quoted}` prints its table, and `adaptive-bench run --config {quoted}/config.yaml` is the run "
            f"again."
        )
    if not is_run(folder):
        raise UsageError(
            f"A run is a folder with a {BEGUN}, but {str(folder)!r} has none. `adaptive-bench list runs` shows them."
        )


def plugins_in(folder: Path) -> list[Path]:
    """Return the plugin files that a run was made with; none if its `command.json` is missing."""
    file = folder / "command.json"
    return [Path(path) for path in read_json(file).get("plugins", ())] if file.is_file() else []


def config_in(folder: Path) -> dict[str, Any]:
    """Read the `config.yaml` of a run; an `EnvironmentProblem` if it is damaged or missing."""
    try:
        return read_mapping(folder / BEGUN)
    except UsageError as error:  # not the user's fault: the program wrote the file
        raise EnvironmentProblem(
            f"A run is read by its config.yaml. {error} Put the run's own file back; or give `adaptive-bench run` the "
            f"options that the run was made with: it writes the file again and computes nothing twice."
        ) from error


def read_json(path: Path) -> Any:
    """Read a JSON file that a run wrote into its folder; the error says how to write it again."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise unusable(path, f"cannot be read: {message_of(error)}") from error


def unusable(path: Path, why: str) -> EnvironmentProblem:
    """Return an error that says what is wrong with a file of a run, such as `is missing`, and how to write it again."""
    command = retry_command(path.parent)
    return EnvironmentProblem(f"The file {str(path)!r} {why.rstrip('.')}. To write it again: `{command}`.")


def write_run(folder: Path, about: Mapping[str, Any]) -> None:
    """Write `run.json`, which says how a run ended. The run keeps the time at which it first finished."""
    atomic.update_json(folder / ENDED, about, ("finished", "took_s"))


def ending_of(folder: Path) -> dict[str, Any]:
    """Read `run.json`, which says how a run ended; empty if the run has not ended."""
    about: dict[str, Any] = read_json(folder / ENDED) if (folder / ENDED).is_file() else {}
    return about


def read_run(config: Path) -> dict[str, Any]:
    """Read a run's `config.yaml`, joined with its `command.json` (how the run began) and its `run.json` (how it ended).
    For a damaged run, return only `state` and `problem`.
    """
    try:
        about = config_in(config.parent)
        if (command := config.with_name("command.json")).is_file():
            about |= read_json(command)
        about |= ending_of(config.parent)
        if "state" in about and not (table := config.with_name("table.json")).is_file():
            raise unusable(table, "is missing, though the run has ended")
    except AdaptiveBenchError as error:
        return {"state": "damaged", "problem": message_of(error)}
    return about


def load_results(*folders: Path | str, out: Path | str = "runs") -> DataFrame:
    """Return the rows of runs as one tidy frame: one row for each method, task, metric, axis, phase and level.

    Beside the columns of `table.json` it has `run` (the run's folder), `run_state`, `model` and `finished`. A run that
    has no row because its work failed gives a warning.

    Args:
        folders: Folders or names of runs (see `find_run`); without any, every finished run in `out`.
        out: Folder in which runs are looked for.

    Raises:
        UsageError: There is no such run.
        EnvironmentProblem: No run has ended, or a table is damaged.
    """
    import pandas  # imported here, because it is by far the slowest import

    # Level 3 is the caller: `warn` is called by `tidy_rows`, and that from here.
    return pandas.DataFrame(tidy_rows(*folders, out=out, tell=partial(warnings.warn, stacklevel=3)))


def tidy_rows(*folders: Path | str, out: Path | str = "runs", tell: Callable[[str], object]) -> list[dict[str, Any]]:
    """Return the rows of `load_results`, without pandas.

    Args:
        tell: Called with a sentence for each run that has no row.
    """
    rows: list[dict[str, Any]] = []
    places = [find_run(folder, Path(out)) for folder in folders] or [Path(out)]
    chosen = [table.parent for place in places for table in tables(place)]
    for folder in chosen:
        check_run(folder)
    for folder in {folder.resolve(): folder for folder in chosen}.values():  # each once
        about = read_run(folder / "config.yaml")
        same = {
            "run": str(folder),
            "run_state": about.get("state", "unfinished"),
            "model": about.get("model"),
            "finished": about.get("finished"),
        }
        table = read_json(folder / "table.json")
        if not table:
            tell(why_empty(folder))
        rows += [same | row for row in table]
    return rows


def why_empty(folder: Path) -> str:
    """Return a sentence that says why a finished run has no results."""
    failures = ending_of(folder).get("failures", ())
    what = f": {len(failures)} piece(s) of its work failed, the first with {failures[0]}" if failures else ""
    return (
        f"The run {run_name(folder)!r} has no results{one_line(what, 400).rstrip('.')}. `{retry_command(folder)}` does "
        f"again what failed."
    )


def alike(rows: Rows) -> list[dict[str, Any]]:
    """Return the rows with the keys of all of them, in the same order; `None` if a row lacks the key."""
    names = dict.fromkeys(name for row in rows for name in row)
    # `names` comes first, so that every row has its order.
    return [{**names, **row} for row in rows]


def as_csv(rows: Rows) -> str:
    """Return CSV: a header and a line for each row; `None` becomes an empty cell."""
    found, text = alike(rows), io.StringIO()
    writer = csv.DictWriter(text, found[0] if found else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return text.getvalue()


def as_parquet(rows: Rows) -> bytes:
    """Return a Parquet file. It is made without pandas, whose import takes longer than building a board."""
    import pyarrow
    from pyarrow import parquet

    written = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist(alike(rows)), written)
    return bytes(written.getvalue())
