"""`adaptive-bench export`: the rows of runs as one tidy table for other programs."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from adaptive_bench import output
from adaptive_bench.cli.failures import paragraph
from adaptive_bench.cli.named_run import Out, named, run_names
from adaptive_bench.errors import UsageError
from adaptive_bench.store import atomic
from adaptive_bench.store.formats import as_csv, as_json, as_parquet
from adaptive_bench.store.results import finished_runs, tidy_rows, why_empty
from adaptive_bench.store.runs import DEFAULT_OUT


class Form(StrEnum):
    """A file format."""

    csv = "csv"
    parquet = "parquet"
    json = "json"
    lm_eval = "lm-eval"


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
        typer.Option(
            "--format",
            help="csv, parquet, json, by default as the file's name ends, else csv; lm-eval: its results, in a folder.",
        ),
    ] = None,
    to: Annotated[
        Path, typer.Option("--output", "-o", parser=output.file, help="The file; by default -, standard output.")
    ] = output.STDOUT,
    out: Out = DEFAULT_OUT,
) -> None:
    """Write one row for each method, task, metric, axis, phase and level: what `load_results()` gives in Python."""
    named_so = _form_of(to)
    if named_so is None and form is None:
        raise UsageError(
            f"A file ends as its format, .csv, .json or .parquet, got {str(to)!r}. Rename it, or give --format."
        )
    if form not in (None, Form.lm_eval, named_so) and to.suffix == f".{named_so}":
        raise UsageError(f"A file ends as its format, got --format {form} and -o {str(to)!r}. Leave --format out.")
    form = form or named_so
    if form is Form.parquet and output.is_stdout(to) and sys.stdout.isatty():
        raise UsageError("Parquet is no text that a terminal could show. Name a file with -o.")
    if form is Form.lm_eval:
        _export_lm_eval(finished_runs(*(folders or []), out=out), to)
        return
    rows = tidy_rows(*(folders or []), out=out, tell=_tell)
    if form is Form.parquet:
        output.write_bytes(to, as_parquet(rows))
    else:
        output.write_text(to, as_csv(rows) if form is Form.csv else as_json(rows))
    about = f"{len(rows)} rows of {len({row['run'] for row in rows})} run(s) written to {output.named(to)}"
    typer.echo(about, err=output.is_stdout(to))


def _export_lm_eval(runs: list[Path], to: Path) -> None:
    """One results file for each model (method, training, saving) of each run, in folders as lm-eval writes them."""
    from adaptive_bench.store.formats import lm_eval_files

    if output.is_stdout(to):
        raise UsageError("Results files of lm-eval are written into a folder, got standard output. Name one with -o.")
    folder = output.new_folder(to)
    if folder.exists():
        raise UsageError(f"Results are written into a new folder, got {str(to)!r}, which exists. Name another one.")
    count = 0
    with atomic.new_folder(folder) as temporary:
        for run in runs:
            before = count
            for file, contents in lm_eval_files(run):
                (temporary / file).parent.mkdir(parents=True, exist_ok=True)
                atomic.write_json(temporary / file, contents)
                count += 1
            if count == before:
                _tell(why_empty(run))
    typer.echo(f"{count} results files of {len(runs)} run(s) written to {to}")


def _tell(text: str) -> None:
    typer.echo(paragraph(text), err=True)


def _form_of(file: Path) -> Form | None:
    """The format of a file by its ending, CSV without any; `None` for another one."""
    ending = file.suffix.removeprefix(".")
    if ending in set(Form):
        return Form(ending)
    return None if ending and not output.is_stdout(file) else Form.csv
