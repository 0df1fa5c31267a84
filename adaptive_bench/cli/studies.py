"""What `headroom`, `inspect` and `speculate` have in common: options, how tasks are named, and where a record goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from adaptive_bench import output
from adaptive_bench.cli.values import items_value
from adaptive_bench.errors import UsageError
from adaptive_bench.store.atomic import json_text

NumFewshot = Annotated[
    int | None, typer.Option(min=0, help="Worked examples before each question; default: the task's own number.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda:0, ...")]
DataDir = Annotated[Path | None, typer.Option(help="Folder with local data files (or set ADAPTIVE_BENCH_DATA).")]
RecordFile = Annotated[
    Path | None, typer.Option("--output", "-o", parser=output.file, help="Write the record as JSON, - for stdout.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the record as JSON instead.")]
Plugins = Annotated[
    list[Path] | None, typer.Option(help="Python file that registers methods, tasks or models; may be repeated.")
]


def tasks_and_data(tasks: str, data_dir: Path | None) -> tuple[list[str], Path | None]:
    """The tasks that were asked for, each found, and the folder of local data; before a model is loaded.

    Args:
        tasks: What was given for `--tasks`.

    Raises:
        UsageError: There is no task, or none of that name.
        EnvironmentProblem: The folder is not there.
    """
    from adaptive_bench.config_file import check_data_folder
    from adaptive_bench.data import data_root
    from adaptive_bench.evaluation.lookup import expand_tasks, find_task

    check_data_folder(root := data_root(data_dir))
    names = list(expand_tasks(items_value(tasks, "--tasks")))
    if not names:
        raise UsageError(f"--tasks names at least one task, got {tasks!r}. `list tasks` shows them.")
    for name in names:
        find_task(name)
    return names, root


def give_record(record: Mapping[str, Any], to: Path | None, as_json: bool, shown: Callable[[Any], str]) -> None:
    """Write what a command measured as JSON where that is asked for, and print it; nothing besides on standard output.

    Args:
        to: Where to; `None` for nowhere.
        as_json: Print JSON instead of what `shown` makes of it.
    """
    if to is not None:
        output.write_text(to, json_text(record))
    if output.is_stdout(to):
        return
    if as_json:
        typer.echo(json_text(record), nl=False)
    else:
        typer.echo(shown(record) + (f"\n\nWritten to {to}" if to is not None else ""))
