"""`adaptive-bench rm` and `clean`: delete a run, or what no run refers to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_bench.cli.named_run import Out, Run
from adaptive_bench.cli.tables import fitting
from adaptive_bench.errors import UsageError
from adaptive_bench.store.runs import DEFAULT_OUT, check_output, run_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adaptive_bench.store.inventory import Removable

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, with sizes, and delete nothing.")]


def rm(run: Run, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Delete a run: its folder, and its records that nothing else refers to. One that is under way is refused.

    What other runs, trainings that start from it or trials share with it stays.
    """
    from adaptive_bench.store.inventory import of_run

    _delete(of_run(run), f"the run {run_name(run)}", yes, dry_run)


def clean(
    out: Out = DEFAULT_OUT,
    trials: Annotated[
        bool,
        typer.Option(
            "--trials",
            help="Also what `tune` tried, or were stopped at: trainings never evaluated on test "
            "documents. They would train it again.",
        ),
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Delete records that no run refers to.

    Nothing that a run of the folder refers to is deleted. A run that was moved out of the folder is not asked.
    """
    from adaptive_bench.store.inventory import of_output

    check_output(out)
    found = of_output(out, trials=trials)
    if not found:
        typer.echo(
            f"Every record in {out} belongs to a run{'' if trials else ' or a trial'}: nothing is to be deleted."
        )
        return
    _delete(found, f"what no run in {out} refers to", yes, dry_run)


def _delete(found: Sequence[Removable], what: str, yes: bool, dry_run: bool) -> None:
    from adaptive_bench.store.inventory import remove

    typer.echo(fitting([{"folder": str(one.folder), "what": one.what, "MB": _mb(one.size_bytes)} for one in found]))
    total = f"{len(found)} folder(s), {_mb(sum(one.size_bytes for one in found))} MB"
    if dry_run:
        typer.echo(f"\n{total}: nothing was deleted.")
        return
    if not yes and not sys.stdin.isatty():
        raise UsageError(f"Without a terminal to ask at, {what} is deleted with --yes alone. --dry-run only lists it.")
    if not yes:
        typer.echo()
        typer.confirm(f"Delete {what}, {total}?", abort=True)
    remove(found)
    typer.echo(f"\n{total}: deleted.")


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.2f}"
