"""`adaptive-bench status`, `rm`, `clean` and `export`: show, delete and write out what lies in the output folder."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_bench import output
from adaptive_bench.cli.options import DEFAULT_OUT, AsJson, Out, Run, find_run, run_names
from adaptive_bench.cli.terminal_text import fitting, paragraph
from adaptive_bench.errors import UsageError
from adaptive_bench.store import atomic
from adaptive_bench.store.atomic import json_text
from adaptive_bench.store.runs import alike, as_csv, as_parquet, check_output, run_name, tidy_rows

if TYPE_CHECKING:
    from adaptive_bench.store.manifest import Removable

_OF_WORK = ("running", "stopped", "partial", "failed", "damaged", "planned", "done")  # states, in the order shown


def status(
    out: Out = DEFAULT_OUT,
    everything: Annotated[bool, typer.Option("--all", help="List finished work as well.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what runs, what stopped, what failed and why, and what is damaged.

    `stopped` is work whose process is gone, and `partial` is work that was interrupted: the command of their run
    continues both.
    """
    from adaptive_bench.store.manifest import pieces

    check_output(out)
    found = sorted(pieces(out), key=lambda piece: _OF_WORK.index(piece.state))
    if as_json:  # with finished work, whatever --all says
        typer.echo(json_text([asdict(piece) | {"folder": str(piece.folder)} for piece in found]), nl=False)
    else:
        counts = Counter(piece.state for piece in found)
        summary = ", ".join(f"{counts[state]} {state}" for state in _OF_WORK if counts[state])
        typer.echo(f"{len(found)} pieces of work in {out}: {summary or 'no process has begun yet'}")
        shown = ("state", "work", "method", "seed", "progress", "since")
        rows = [
            {key: "" if (value := getattr(piece, key)) is None else str(value) for key in shown}
            for piece in found
            if everything or piece.state != "done"
        ]
        if rows:
            typer.echo("\n" + fitting(rows))
        for piece in found:
            if piece.state in ("failed", "damaged"):
                typer.echo("\n" + paragraph(f"{piece.work} {piece.method}: {piece.reason} See {piece.folder}"))


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, with sizes, and delete nothing.")]


def rm(run: Run, yes: Yes = False, dry_run: DryRun = False, out: Out = DEFAULT_OUT) -> None:
    """Delete a run: its folder, and its records that nothing else refers to. A run that is under way is refused.

    Records that other runs, trainings that start from them, or trials use stay.
    """
    from adaptive_bench.store.manifest import removable_with

    folder = find_run(run, out)
    _delete(removable_with(folder), f"the run {run_name(folder)}", yes, dry_run)


def clean(
    out: Out = DEFAULT_OUT,
    trials: Annotated[
        bool,
        typer.Option(
            "--trials",
            help="Also delete trials of `tune`, finished or not: trainings never evaluated on test documents. `tune` "
            "would train them again.",
        ),
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Delete records that no run refers to.

    Records that a run in the folder refers to stay. Runs that were moved out of the folder do not count.
    """
    from adaptive_bench.store.manifest import unreferenced

    check_output(out)
    if found := unreferenced(out, trials=trials):
        _delete(found, f"what no run in {out} refers to", yes, dry_run)
    else:
        owners = "a run" if trials else "a run or a trial"  # with --trials a trial keeps nothing
        typer.echo(f"Every record in {out} belongs to {owners}: nothing is to be deleted.")


def _delete(found: Sequence[Removable], what: str, yes: bool, dry_run: bool) -> None:
    rows = [{"folder": str(one.folder), "what": one.what, "MB": f"{one.size_bytes / 1e6:.2f}"} for one in found]
    typer.echo(fitting(rows))
    total = f"{len(found)} folder(s), {sum(one.size_bytes for one in found) / 1e6:.2f} MB"
    if dry_run:
        typer.echo(f"\n{total}: nothing was deleted.")
        return
    if not yes and not sys.stdin.isatty():
        raise UsageError(f"Without a terminal to ask at, {what} is deleted with --yes alone. --dry-run only lists it.")
    if not yes:
        typer.echo()
        typer.confirm(f"Delete {what}, {total}?", abort=True)
    for one in found:
        atomic.remove(one.folder)
    typer.echo(f"\n{total}: deleted.")


def export(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            autocompletion=run_names,
            help="Names of runs (see `list runs`), their beginnings, folders or `last`; without any, all finished.",
        ),
    ] = None,
    to: Annotated[
        Path, typer.Option("--output", "-o", help="A .csv, .json or .parquet; default: -, CSV on standard output.")
    ] = output.STDOUT,
    out: Out = DEFAULT_OUT,
) -> None:
    """Write one row for each method, task, metric, axis, phase and level: what `load_results()` gives in Python."""
    form = to.suffix or ".csv"  # standard output has no suffix
    if form not in (".csv", ".json", ".parquet"):
        raise UsageError(f"A file ends as its format, .csv, .json or .parquet, got {str(to)!r}. Rename it.")
    rows = tidy_rows(*(runs or []), out=out, tell=lambda text: typer.echo(paragraph(text), err=True))
    if form == ".parquet":
        output.write_bytes(to, as_parquet(rows))
    else:
        output.write_text(to, json.dumps(alike(rows), ensure_ascii=False) + "\n" if form == ".json" else as_csv(rows))
    about = f"{len(rows)} rows of {len({row['run'] for row in rows})} run(s) written to {output.named(to)}"
    typer.echo(about, err=output.is_stdout(to))
