"""`adaptive-bench leaderboard`: the tables of one or several runs as one text."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from adaptive_bench import registry
from adaptive_bench.cli.named_run import Out, Runs
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.store.results import ending_of, read_table
from adaptive_bench.store.runs import DEFAULT_OUT, newest, tables
from adaptive_bench.tables.finished import Row, joined, made_by_other_rules, not_to_be_quoted, phase_of

_COUNTED = ("net", "core", "tokens")  # in every phase; the others pooled only
AXES = (*_COUNTED, "claimed", "projected", "bytes", "time")
PHASES = ("all", "prefill", "decode")


def leaderboard(
    folders: Runs = None,
    style: Annotated[
        str, typer.Option("--format", help="terminal (80 columns), or markdown with everything.")
    ] = "terminal",
    axis: Annotated[
        str | None, typer.Option(metavar="|".join(AXES), help="The axis; by default the one the run was matched on.")
    ] = None,
    phase: Annotated[
        str | None,
        typer.Option(metavar="|".join(PHASES), help="The tokens that count; by default those the run was matched on."),
    ] = None,
    timing: Annotated[
        str | None, typer.Option(help="Of saved time only the settings whose name contains this, `batch 8` say.")
    ] = None,
    wide: Annotated[
        bool, typer.Option("--wide", help="Scores with intervals at all levels, and what was saved and spent there.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Every measured axis and phase; with --format markdown every metric as well.")
    ] = False,
    out: Out = DEFAULT_OUT,
) -> None:
    """Print the leaderboard of one or several runs."""
    check_value("--axis", axis, AXES)
    check_value("--phase", phase, PHASES)
    if wide and style != "terminal":
        raise UsageError(
            f"--wide is for --format terminal, got {style!r}, which shows all levels anyway. Leave it out."
        )
    render = registry.get("leaderboards", style)
    chosen = [path for folder in folders for path in tables(folder)] if folders else [newest(out)]
    rows = joined({path.parent: read_table(path) for path in chosen})
    folders = [path.parent for path in chosen]
    for note in (*not_to_be_quoted(folders), *made_by_other_rules(folders)):
        typer.echo(f"Note: {note}", err=True)
    axis_then, phase_then = _matched([path.parent for path in chosen], rows)
    one_axis = axis or axis_then
    one_phase = phase or (phase_then if one_axis in _COUNTED else "all")
    axes = {one_axis} if axis or not full else set(AXES) - {"projected"}
    phases = {one_phase} if phase or not full else set(PHASES)
    found = [row for row in rows if row["axis"] in axes and phase_of(row) in phases]
    if rows and not found:
        raise EnvironmentProblem(_missing(one_axis, one_phase, rows))
    if timing is not None and not any(row.get("timing") and _in_setting(row, timing) for row in found):
        settings = sorted({str(row["timing"]) for row in rows if row.get("timing")})
        raise UsageError(
            f"--timing is for saved time, of settings whose name contains it, got {timing!r}, which none of these rows "
            f"has. Give --axis time with one of them: {', '.join(settings) or 'nothing was timed'}."
        )
    found = [row for row in found if _in_setting(row, timing)]
    typer.echo(render(found, wide=wide or full) if style == "terminal" else render(found))


def check_value(option: str, value: str | None, known: Iterable[str]) -> None:
    if value is not None and value not in known:
        raise UsageError(f"{option} is one of {', '.join(known)}, got {value!r}. {registry.did_you_mean(value, known)}")


def _matched(folders: list[Path], rows: list[Row]) -> tuple[str, str]:
    """Axis and phase the runs were matched on, where they agree; else saved net FLOPs, pooled."""
    said = {_said(folder) for folder in folders}
    if len(said) == 1 and (only := said.pop()) is not None:
        return only
    axes = [row["axis"] for row in rows]
    return ("net" if "net" in axes or not axes else axes[0]), "all"


def _said(folder: Path) -> tuple[str, str] | None:
    about = ending_of(folder)
    if not {"match_on", "match_phase"} <= about.keys():
        return None
    return str(about["match_on"]), str(about["match_phase"])


def _missing(axis: str, phase: str, rows: list[Row]) -> str:
    """Why there is no table, and how to get one."""
    if axis == "time" and not any(row["axis"] == "time" for row in rows):
        return (
            "A table by saved time needs timings of the run's methods, but there is none in these tables. Give "
            "`adaptive-bench time` with the run's --model, --methods and --out, then its `run` once more: nothing is "
            "computed again."
        )
    if phase != "all" and axis not in _COUNTED:
        return (
            f"Saved {axis} is known of all phases together alone, got --phase {phase}. Leave --phase out, or give "
            f"--axis {', '.join(_COUNTED[:-1])} or {_COUNTED[-1]}."
        )
    there = sorted({(row["axis"], phase_of(row)) for row in rows})
    return (
        f"These tables have no rows by {axis} in the phase {phase!r}; there is "
        f"{', '.join(found if where == 'all' else f'{found} of {where}' for found, where in there)}. Log-likelihood "
        f"tasks write no tokens, and older tables are pooled only: give the same `adaptive-bench run` again."
    )


def _in_setting(row: Row, wanted: str | None) -> bool:
    setting = row.get("timing")
    return wanted is None or setting is None or wanted in setting
