"""Reads what runs leave behind, which may be damaged, half written or from somewhere else: the file is always
named.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, message_of, one_line
from adaptive_bench.store import atomic
from adaptive_bench.store.runs import (
    check_run,
    config_in,
    find_run,
    has_ended,
    read_json,
    refuse_entry,
    retry_command,
    run_name,
    tables_below,
    unusable,
)

if TYPE_CHECKING:
    from pandas import DataFrame

# What every table needs of a row; newer rows have more.
_ROW = ("method", "semantics", "task", "metric", "axis", "level", "score", "low", "high", "status")
_KEYS_OF_A_RUN = ("methods", "tasks", "model", "seeds")
RUN = "run.json"


def read_table(path: Path) -> list[dict[str, Any]]:
    """The rows of a `table.json`.

    Raises:
        UsageError: It is that of an entry, which has none.
        EnvironmentProblem: It cannot be read, or is no table.
    """
    refuse_entry(path.parent)
    rows = read_json(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise unusable(path, "must hold a list of rows")
    for number, row in enumerate(rows, 1):
        if missing := [key for key in _ROW if key not in row]:
            raise unusable(path, f"must hold rows with {', '.join(_ROW)}, but row {number} has no {missing[0]}")
    return rows


def write_run(folder: Path, about: Mapping[str, Any]) -> None:
    """Write `run.json`: what a run says of its end. If it says the same as before but for times, the run finished when
    it did, and nothing is written.
    """
    times = {"finished": "", "took_s": 0.0}
    try:
        before = json.loads((folder / RUN).read_bytes())
    except (OSError, ValueError, RecursionError):
        before = None
    if not isinstance(before, dict) or {**before, **times} != json.loads(atomic.json_text({**about, **times})):
        atomic.write_json(folder / RUN, about)


def ending_of(folder: Path) -> dict[str, Any]:
    """What `run.json` says of a run's end; nothing before that.

    Raises:
        EnvironmentProblem: It cannot be read.
    """
    path = folder / RUN
    about = read_json(path) if path.is_file() else {}
    if not isinstance(about, dict):
        raise unusable(path, f"must hold keys and values, got {type(about).__name__}")
    return about


def read_run(config: Path) -> dict[str, Any]:
    """A run's `config.yaml`, with what `command.json` says of its beginning and `run.json` of its end; of a damaged one
    only what is wrong.

    Args:
        config: The run's `config.yaml`.
    """
    try:
        about = config_in(config.parent)
        if (command := config.with_name("command.json")).is_file():
            about |= read_json(command)
        about |= ending_of(config.parent)
        if missing := [key for key in _KEYS_OF_A_RUN if key not in about]:
            raise unusable(config, f"must hold a run's {', '.join(_KEYS_OF_A_RUN)}, but has no {', '.join(missing)}")
        if "state" in about and not (table := config.with_name("table.json")).is_file():
            raise unusable(table, "is missing, though the run has ended")
    except AdaptiveBenchError as error:
        return {"state": "damaged", "problem": message_of(error)}
    return about


def load_results(*folders: Path | str, out: Path | str = "runs") -> DataFrame:
    """The rows of runs as one tidy frame: one row for each method, task, metric, axis, phase and level.

    Beside the columns of `table.json` it has `run` (its folder), `run_state`, `model` and `finished`.

    Args:
        folders: Of runs, or their names (see `find_run`); without any, every finished run in `out`.
        out: Where runs are looked for.

    Of a run without a row, whose work failed, a warning tells.

    Raises:
        EnvironmentProblem: There is no such run, or its table is damaged.
    """
    import pandas  # by far the slowest of all that reading takes

    return pandas.DataFrame(tidy_rows(*folders, out=out, tell=partial(warnings.warn, stacklevel=3)))


def finished_runs(*folders: Path | str, out: Path | str = "runs") -> list[Path]:
    """The folders of some runs, or of all finished ones in `out`; see `load_results`."""
    chosen = [find_run(folder, Path(out)) for folder in folders] or [file.parent for file in tables_below(Path(out))]
    places = [folder.resolve() for folder in chosen]
    if twice := next((folder for folder, place in zip(chosen, places, strict=True) if places.count(place) > 1), None):
        raise UsageError(f"Each run is read once, got {str(twice)!r} more than once. Leave the others out.")
    if not chosen:
        raise EnvironmentProblem(
            f"There is no finished run in {str(out)!r}. Give `adaptive-bench run`, or name another folder."
        )
    for folder in chosen:
        check_run(folder)
        if not has_ended(folder):
            raise EnvironmentProblem(
                f"A finished run has a table.json, but there is none in {str(folder)!r}. `adaptive-bench list runs` "
                f"shows the runs; an unfinished one continues with `{retry_command(folder)}`."
            )
    return chosen


def tidy_rows(*folders: Path | str, out: Path | str = "runs", tell: Callable[[str], object]) -> list[dict[str, Any]]:
    """The rows of `load_results`, without pandas.

    Args:
        tell: Is given a sentence for each run that has no row.
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
    """Of a finished run without results what there is to say."""
    failures = read_run(folder / "config.yaml").get("failures", ())
    what = (
        f": {len(failures)} piece(s) of its work failed, the first with {one_line(failures[0], 300)}"
        if failures
        else ""
    )
    return (
        f"The run {run_name(folder)!r} has no results{what.rstrip('.')}. `{retry_command(folder)}` does again what "
        f"failed."
    )
