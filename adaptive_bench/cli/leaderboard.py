"""`adaptive-bench leaderboard`: the tables of one or several runs as one text."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import typer

from adaptive_bench import registry
from adaptive_bench.cli.failures import Debug
from adaptive_bench.cli.result_files import read_table
from adaptive_bench.errors import EnvironmentProblem

Row = dict[str, Any]
_MEANING = ("method", "semantics", "task", "metric", "axis", "level", "timing")


def leaderboard(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Folders of runs, see `list runs`; without any, the newest run.")
    ] = None,
    style: Annotated[str, typer.Option("--format", help="markdown or terminal.")] = "markdown",
    axis: Annotated[str | None, typer.Option(metavar="net|core|tokens|time", help="Only this axis.")] = None,
    timing: Annotated[
        str | None, typer.Option(help="Of saved time only the settings whose name contains this, `batch 8` say.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Print the leaderboard of one or several runs."""
    render = registry.get("leaderboards", style)
    chosen = [path for folder in folders for path in tables(folder)] if folders else [newest(Path("runs"))]
    rows = joined({path.parent: read_table(path) for path in chosen})
    if axis == "time" and not any(row["axis"] == "time" for row in rows):
        raise EnvironmentProblem(
            "A table by saved time needs timings of the run's methods, but there is none in these tables. Give "
            "`adaptive-bench time` with the run's --model, --methods and --out, then its `run` once more: nothing is "
            "computed again."
        )
    typer.echo(render([row for row in rows if axis in (None, row["axis"]) and _in_setting(row, timing)]))


def _in_setting(row: Row, wanted: str | None) -> bool:
    setting = row.get("timing")
    return wanted is None or setting is None or wanted in setting


def tables(folder: Path) -> list[Path]:
    """The tables of a run's folder, or of every run below a folder.

    Raises:
        EnvironmentProblem: There is none.
    """
    found = [folder / "table.json"] if (folder / "table.json").is_file() else sorted(folder.rglob("table.json"))
    if not found:
        raise EnvironmentProblem(
            f"A finished run leaves a table.json, but there is none in {str(folder)!r}. Run `adaptive-bench run` "
            f"first, or name the folder that its --out was."
        )
    return found


def newest(folder: Path) -> Path:
    """The table below a folder that was written last."""
    return max(tables(folder), key=lambda path: path.stat().st_mtime)


def joined(tables_by_folder: dict[Path, list[Row]]) -> list[Row]:
    """One list of rows. Where two runs disagree on a score, both stay and their methods carry the name of the run."""
    answers: dict[tuple[Any, ...], dict[Path, Row]] = defaultdict(dict)
    for folder, rows in tables_by_folder.items():
        for row in rows:
            answers[tuple(row.get(key) for key in _MEANING)][folder] = row
    disputed = {
        meaning[:2]
        for meaning, by_folder in answers.items()
        if any(row != next(iter(by_folder.values())) for row in by_folder.values())
    }
    result: list[Row] = []
    for meaning, by_folder in answers.items():
        if meaning[:2] in disputed:
            result += [row | {"method": f"{row['method']} ({folder.name})"} for folder, row in by_folder.items()]
        else:
            result.append(next(iter(by_folder.values())))
    return result
