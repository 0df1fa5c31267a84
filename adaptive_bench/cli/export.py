"""`adaptive-bench export`: the rows of runs as one tidy table for other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from adaptive_bench import output
from adaptive_bench.cli.named_run import run_names
from adaptive_bench.store.results import tidy_rows
from adaptive_bench.store.runs import find_run
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
            parser=find_run,
            autocompletion=run_names,
            help="Names of runs (see `list runs`), their beginnings, or folders; without any, all finished runs.",
        ),
    ] = None,
    to: Annotated[Form, typer.Option(help="csv, parquet or json.")] = Form.csv,
    write: Annotated[
        Path | None,
        typer.Option(parser=output.file, help="The file, or - for standard output; by default results.FORMAT here."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where runs are looked for if none is named.")] = Path("runs"),
) -> None:
    """Write one row for each method, task, metric, axis, phase and level: what `load_results()` gives in Python."""
    rows = tidy_rows(*(folders or []), out=out)
    file = write or Path(f"results.{to}")
    if to is Form.parquet:
        output.write_bytes(file, as_parquet(rows))
    else:
        output.write_text(file, as_csv(rows) if to is Form.csv else as_json(rows))
    about = f"{len(rows)} rows of {len({row['run'] for row in rows})} run(s) written to {file}"
    typer.echo(about, err=output.is_stdout(file))
