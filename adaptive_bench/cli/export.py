"""`adaptive-bench export`: the rows of runs as one tidy table for other programs."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from adaptive_bench import output
from adaptive_bench.cli.named_run import Out, named, run_names
from adaptive_bench.errors import UsageError
from adaptive_bench.store.results import tidy_rows
from adaptive_bench.store.runs import DEFAULT_OUT
from adaptive_bench.store.tidy import as_csv, as_json, as_parquet


class Form(StrEnum):
    """A file format."""

    csv = "csv"
    parquet = "parquet"
    json = "json"


def export(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN]...",
            parser=named,
            autocompletion=run_names,
            help="Names of runs (see `list runs`), their beginnings, folders or `last`; without any, all finished.",
        ),
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option("--format", help="csv, parquet or json; by default as the file's name ends, else csv."),
    ] = None,
    to: Annotated[
        Path, typer.Option("--output", "-o", parser=output.file, help="The file; by default -, standard output.")
    ] = output.STDOUT,
    out: Out = DEFAULT_OUT,
) -> None:
    """Write one row for each method, task, metric, axis, phase and level: what `load_results()` gives in Python."""
    form = form or _form_of(to)
    if form is Form.parquet and output.is_stdout(to) and sys.stdout.isatty():
        raise UsageError("Parquet is no text that a terminal could show. Name a file with -o.")
    rows = tidy_rows(*(folders or []), out=out)
    if form is Form.parquet:
        output.write_bytes(to, as_parquet(rows))
    else:
        output.write_text(to, as_csv(rows) if form is Form.csv else as_json(rows))
    about = f"{len(rows)} rows of {len({row['run'] for row in rows})} run(s) written to {to}"
    typer.echo(about, err=output.is_stdout(to))


def _form_of(file: Path) -> Form:
    ending = file.suffix.removeprefix(".")
    return Form(ending) if ending in set(Form) else Form.csv
