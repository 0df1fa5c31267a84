"""How commands that compare trainings end: with what they found, its record where one is wanted, and what failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from adaptive_bench import output

if TYPE_CHECKING:
    from adaptive_bench.jobs.failure import Failure


def report(text: str, write: Path | None, record: Callable[[], Any], failures: Sequence[Failure]) -> None:
    """Print what was found, on standard error where the record goes to standard output, and write the record.

    Args:
        write: Where to; `None` for nowhere.
        record: Gives plain values.
        failures: Of the work; with any the command ends with exit code 1.
    """
    typer.echo(f"\n{text}", err=output.is_stdout(write))
    if write is not None:
        output.write_json(write, record())
    for failure in failures:
        typer.echo(f"\nFailed: {failure}", err=True)
    if failures:
        raise typer.Exit(1)
