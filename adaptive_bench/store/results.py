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
from adaptive_bench.store.digest import changed, digests, unsealed
from adaptive_bench.store.run_files import (
    check_files,
    check_key,
    check_run,
    config_in,
    has_ended,
    refuse_entry,
    run_command,
)
from adaptive_bench.store.runs import find_run, retry_command, run_name, tables_below
from adaptive_bench.store.shelves import check_listable

if TYPE_CHECKING:
    from pandas import DataFrame

# What every table needs of a row; newer rows have more.
_ROW = ("method", "semantics", "task", "metric", "axis", "level", "score", "low", "high", "status")
_KEYS_OF_A_RUN = ("methods", "tasks", "model", "seeds")
# What else is read of a run, with its kind in words; lists are of text.
_KINDS: dict[str, tuple[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(("state", "problem", "began", "finished", "directory"), ("text", str)),
    **dict.fromkeys(("records", "warnings", "failures", "notes", "plugins"), ("a list of text", list)),
    "took_s": ("a number", (int, float)),
}
TABLES = ("table.json", "answers.json", "methods.json")
RUN = "run.json"  # with digests of the tables


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


def write_run(folder: Path, about: Mapping[str, Any]) -> None:
    """Write `run.json`: what a run says of its end, with digests of its tables. If it says the same as before but for
    times, the run finished when it did, and nothing is written.
    """
    files = digests(folder, (file for name in TABLES if (file := folder / name).is_file()))
    told = {"tables": 1, **about, "files": files}  # older runs do not name the version of the rules of tables
    times = {"finished": "", "took_s": 0.0}
    try:
        before = unsealed((folder / RUN).read_bytes())
    except (OSError, ValueError, RecursionError):
        before = {}
    if {"tables": 1, **before, **times} != json.loads(atomic.json_text({**told, **times})):
        atomic.write_sealed(folder / RUN, told)


def check_unchanged(file: Path) -> None:
    """Refuse a table, or what lies beside it, that is not what its run wrote. The sealed `run.json` says what that was;
    a table that lies alone is nobody's result.

    Raises:
        UsageError: It is that of an entry, which has none.
        EnvironmentProblem: It, or what stands for it, was changed, has no seal or is not there.
    """
    folder = file.parent
    refuse_entry(folder)
    check_files(folder, RUN, file.name)
    about = folder / RUN
    if not about.is_file():
        raise EnvironmentProblem(
            f"A table is read with what its run says of it, but in {str(folder)!r} there is {file.name} and no {RUN}. "
            f"Put it back, or write both again from the records: `{_again(folder)}`."
        )
    for each in (about, file):
        check_readable(each)
    try:
        said = unsealed(about.read_bytes())
        different = changed(folder, {file.name: said["files"][file.name]})
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        said, different = {}, [about.name]
    if different:
        how = "changed since" if (folder / different[0]).is_file() else "is missing"
        raise EnvironmentProblem(
            f"A run's table stays as the run wrote it, but {different[0]} in {str(folder)!r} {how}. "
            f"Write it again from the records: `{_again(folder)}`."
        )
    if (key := said.get("run_key")) is not None:
        check_key(folder, RUN, key, _again(folder))


def check_readable(file: Path) -> None:
    """Refuse a file that is there and may not be read: that is no change of it.

    Raises:
        EnvironmentProblem: It may not be read.
    """
    try:
        with file.open("rb"):
            pass
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return
    except OSError as error:
        raise EnvironmentProblem(
            f"The file {str(file)!r} has to be read, but {message_of(error)}. Allow it, or name another run."
        ) from error


def wrote(file: Path) -> bool:
    """Whether a run says that it wrote a file beside its table, which may be gone since. Of what says nothing that can
    be used nobody knows; whoever reads its table refuses it.
    """
    about = file.with_name(RUN)
    try:
        said = read_json(about) if about.is_file() else None
    except EnvironmentProblem:
        said = None
    files = said.get("files") if isinstance(said, dict) else None
    return isinstance(files, dict) and file.name in files


def problem_of(folder: Path) -> str:
    """What of the outputs of a run that has ended is not what the run wrote, as an error says it; else an empty text.
    Records are not looked at (see `store.manifest`).
    """
    try:
        check_files(folder)
        if not (folder / RUN).is_file():
            if (folder / TABLES[0]).is_file():
                check_unchanged(folder / TABLES[0])
            return ""
        files = unsealed((folder / RUN).read_bytes()).get("files", {})
        for name in files:
            check_unchanged(folder / name)
    except AdaptiveBenchError as error:
        return message_of(error)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        return f"{RUN} cannot be used: {message_of(error)}. Write it again: `{_again(folder)}`."
    return ""


def _again(folder: Path) -> str:
    return f"{run_command(folder)} --table-only"


def read_run(config: Path) -> dict[str, Any]:
    """A run's `config.yaml`, with what `command.json` says of its beginning and `run.json` of its end; of a damaged one
    only what is wrong.

    Args:
        config: The run's `config.yaml`.
    """
    try:
        about = config_in(config.parent)
        check_files(config.parent, "command.json", RUN)
        for file in (config.with_name("command.json"), config.with_name("run.json")):
            if file.is_file():
                known = read_json(file)
                if not isinstance(known, dict):
                    raise _foreign(file, f"keys and values, got {type(known).__name__}")
                _check_kinds(known, file)
                about |= known
        if missing := [key for key in _KEYS_OF_A_RUN if key not in about]:
            raise _foreign(config, f"a run's {', '.join(_KEYS_OF_A_RUN)}, but has no {', '.join(missing)}")
        if not all(isinstance(about.get(key, {}), dict) for key in ("train", "evaluation")):
            raise _foreign(config, "keys and values under `train` and `evaluation`")
    except AdaptiveBenchError as error:
        return {"state": "damaged", "problem": message_of(error)}
    return about


def _check_kinds(known: Mapping[str, Any], file: Path) -> None:
    for key in filter(_KINDS.__contains__, known):  # the first in the file is named
        value, (wanted, kind) = known[key], _KINDS[key]
        items = value if isinstance(value, list) else ()
        if not isinstance(value, kind) or not all(isinstance(item, str) for item in items):
            raise _foreign(file, f"{wanted} under {key!r}, got {one_line(repr(value), 60)}")


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
    place = Path(out)
    chosen = [find_run(folder, place) for folder in folders] or [file.parent for file in tables_below(place)]
    places = [folder.resolve() for folder in chosen]
    if twice := next((folder for folder, place in zip(chosen, places, strict=True) if places.count(place) > 1), None):
        raise UsageError(f"Each run is read once, got {str(twice)!r} more than once. Leave the others out.")
    if not chosen:
        check_listable(Path(out))
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
    first = (
        f": {len(failures)} piece(s) of its work failed, the first with {one_line(failures[0], 300)}"
        if failures
        else ""
    )
    step = f"`{retry_command(folder)}` does again what failed."
    return f"The run {run_name(folder)!r} has no results{first.rstrip('.')}. {step}"


def _foreign(path: Path, wanted: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"The file {str(path)!r} must hold {wanted}. It is damaged or not one of adaptive-bench's; name another folder."
    )
