"""Reads the result files of runs, and writes rows as CSV, JSON and Parquet for other programs."""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_bench.errors import AdaptiveBenchError, message_of, one_line
from adaptive_bench.store import atomic
from adaptive_bench.store.runs import (
    check_run,
    config_in,
    find_run,
    read_json,
    retry_command,
    run_name,
    tables,
    unusable,
)

if TYPE_CHECKING:
    from pandas import DataFrame

Rows = Sequence[Mapping[str, Any]]
RUN = "run.json"


def read_table(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a `table.json`.

    Raises:
        EnvironmentProblem: The file cannot be read.
    """
    rows: list[dict[str, Any]] = read_json(path)
    return rows


def write_run(folder: Path, about: Mapping[str, Any]) -> None:
    """Write `run.json`, which says how a run ended. If only its times would change, the file stays as it is: the run
    keeps the time at which it first finished.
    """
    try:
        before = json.loads((folder / RUN).read_bytes())
        times = {name: before[name] for name in ("finished", "took_s")}
    except (OSError, ValueError, LookupError):  # the run has not ended yet
        before, times = None, {}
    if before != json.loads(atomic.json_text({**about, **times})):
        atomic.write_json(folder / RUN, about)


def ending_of(folder: Path) -> dict[str, Any]:
    """Read `run.json`, which says how a run ended; empty if the run has not ended.

    Raises:
        EnvironmentProblem: The file cannot be read.
    """
    about: dict[str, Any] = read_json(folder / RUN) if (folder / RUN).is_file() else {}
    return about


def read_run(config: Path) -> dict[str, Any]:
    """Read a run's `config.yaml`, joined with its `command.json` (how the run began) and its `run.json` (how it ended).
    For a damaged run, return only `state` and `problem`.

    Args:
        config: The run's `config.yaml`.
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

    return pandas.DataFrame(tidy_rows(*folders, out=out, tell=partial(warnings.warn, stacklevel=3)))


def finished_runs(*folders: Path | str, out: Path | str = "runs") -> list[Path]:
    """Return the folders of some runs, each once, or of all finished runs in `out`; see `load_results`."""
    places = [find_run(folder, Path(out)) for folder in folders] or [Path(out)]
    chosen = [table.parent for place in places for table in tables(place)]
    for folder in chosen:
        check_run(folder)
    return list({folder.resolve(): folder for folder in chosen}.values())


def tidy_rows(*folders: Path | str, out: Path | str = "runs", tell: Callable[[str], object]) -> list[dict[str, Any]]:
    """Return the rows of `load_results`, without pandas.

    Args:
        tell: Called with a sentence for each run that has no row.
    """
    rows = []
    for folder in finished_runs(*folders, out=out):
        about = read_run(folder / "config.yaml")
        same = {
            "run": str(folder),
            "run_state": about.get("state", "unfinished"),
            "model": about.get("model"),
            "finished": about.get("finished"),
        }
        table = read_table(folder / "table.json")
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
    return [{**names, **row} for row in rows]


def as_csv(rows: Rows) -> str:
    """Return CSV: a header and a line for each row; `None` becomes an empty cell."""
    found, text = alike(rows), io.StringIO()
    writer = csv.DictWriter(text, found[0] if found else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return text.getvalue()


def as_json(rows: Rows) -> str:
    """Return a JSON list of objects that all have the same keys."""
    return json.dumps(alike(rows), ensure_ascii=False) + "\n"


def as_parquet(rows: Rows) -> bytes:
    """Return a Parquet file. It is made without pandas, whose import takes longer than building a board."""
    import pyarrow
    from pyarrow import parquet

    written = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist(alike(rows)), written)
    return bytes(written.getvalue())
