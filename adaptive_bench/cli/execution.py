"""Carries out a run, or prints its plan, with what the user sees while it lasts and when it ends."""

from __future__ import annotations

import typer
from tabulate import tabulate

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import Interrupted
from adaptive_bench.progress import open_reporter


def print_plan(config: RunConfig) -> None:
    """Print the cells of a run: what is cached and what is left to do."""
    from adaptive_bench.runs import describe, plan

    typer.echo(tabulate(describe(plan(config)), headers="keys", tablefmt="simple"))


def execute(config: RunConfig, *, wide: bool = False) -> None:
    """Run, then print the table of the matched axis and phase, what to know about it, and where everything is.

    Raises:
        Interrupted: The user pressed Ctrl-C.
        typer.Exit: Part of the work failed; what succeeded is in the table.
    """
    from adaptive_bench.runs import run

    try:
        with open_reporter() as reporter:
            outcome = run(config, reporter)
    except KeyboardInterrupt:
        raise Interrupted(
            f"Stopped. What was finished is kept in {str(config.out)!r}; the same command continues from there."
        ) from None
    matched = (config.match_on, config.match_phase)
    rows = [row for row in outcome.rows if (row["axis"], row["phase"]) == matched]
    typer.echo("\n" + registry.get("leaderboards", "terminal")(rows, wide=wide))
    for warning in outcome.warnings:
        typer.echo(f"\nNote: {warning}")
    typer.echo(
        f"\nEvery axis and phase: adaptive-bench leaderboard {outcome.folder} --full\nWritten to {outcome.folder}"
    )
    for failure in outcome.failures:
        typer.echo(f"\nFailed: {failure}", err=True)
    if outcome.failures:
        typer.echo("\nThe same command tries again what failed and keeps the rest.", err=True)
        raise typer.Exit(outcome.exit_code)
