"""`adaptive-bench export`: the rows of runs as one tidy table for other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from adaptive_bench import output
from adaptive_bench.cli.failures import Debug
from adaptive_bench.cli.named_run import run_names
from adaptive_bench.store.runs import find_run


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
    debug: Debug = False,
) -> None:
    """Write one row for each method, task, metric, axis, phase and level: what `load_results()` gives in Python."""
    from adaptive_bench.store.results import load_results

    frame = load_results(*(folders or []), out=out)
    file = write or Path(f"results.{to}")
    if to is Form.parquet:
        output.write_bytes(file, frame.to_parquet(index=False))
    else:
        texts = {Form.csv: lambda: frame.to_csv(index=False), Form.json: lambda: frame.to_json(orient="records")}
        output.write_text(file, texts[to]())
    about = f"{len(frame)} rows of {frame['run'].nunique()} run(s) written to {file}"
    typer.echo(about, err=output.is_stdout(file))
