"""Carries out a run or prints its plan, with everything that the user sees meanwhile and at the end."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from adaptive_bench import registry
from adaptive_bench.cli.leaderboard import build
from adaptive_bench.cli.options import debugging
from adaptive_bench.cli.terminal_text import fitting, paragraph, pasteable
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import Interrupted
from adaptive_bench.live_display import Display
from adaptive_bench.progress import let_go, say
from adaptive_bench.spec import MethodSpec, parse_specs
from adaptive_bench.store.runs import run_command, run_name
from adaptive_bench.tables.comparability import QUICK_NOTE

if TYPE_CHECKING:
    from adaptive_bench.jobs.job import Failure
    from adaptive_bench.runs import RunOutcome, Shard


def print_plan(config: RunConfig, part: Shard) -> None:
    """Check everything a run needs, then print the model, the recipe, the cells and what they will take.

    Args:
        part: The part that this command would do; the plan shows the whole run.

    Raises:
        AdaptiveBenchError: The run would fail.
    """
    from adaptive_bench.runs import about, describe, preflight

    with Display() as reporter:
        found = preflight(config, reporter, measures=not part.is_whole)  # names of cells depend on the measured sites
        cells = () if part.is_whole else part.of(found.plan)
    typer.echo("\n".join(about(config, found)))
    typer.echo("\n" + fitting(describe(found.plan, found.estimator)))
    if cells:
        names = ", ".join(cell.folder.name for cell in cells)
        typer.echo("\n" + paragraph(f"Of these, this command would do the cells {names}, with their evaluations."))
    for note in found.notes:
        typer.echo("\n" + paragraph(f"Note: {note}"))


def execute(
    config: RunConfig,
    how: Mapping[str, Any] | None = None,
    *,
    wide: bool = False,
    open_page: bool = False,
    timed: bool = False,
) -> None:
    """Run, then print the table, the notes about it, and where everything is.

    Args:
        how: Further arguments of `adaptive_bench.runs.run`.
        wide: Whether to print all levels and rows, with the scores of every task and what was saved there.
        open_page: Whether to build the page of the run and show it in a browser.
        timed: Whether to time the methods afterwards at every batch size of `adaptive-bench time`, and to make the
            table with their times.
    """
    from adaptive_bench.runs import run

    try:
        with Display() as reporter:
            outcome = run(config, reporter, **how or {})
            if timed and outcome.rows and not outcome.failures:
                from adaptive_bench.runs.timing import TimingRequest, time_specs

                specs = tuple(parse_specs(",".join(config.methods)))
                asked = TimingRequest(specs, config.model, device=config.device, out=config.out, run=config)
                time_specs(asked, reporter)
                outcome = run(config, reporter, table_only=True)  # the same table, now with times
    except KeyboardInterrupt:
        raise Interrupted(
            f"Stopped. What was finished is kept in {str(config.out)!r}; re-run the command to continue."
        ) from None
    if not outcome.is_main_process:  # under torchrun one process speaks for all
        return
    try:
        _print_outcome(outcome, config, wide=wide, open_page=open_page)
    except BrokenPipeError:  # standard output was closed; everything is on disk
        let_go(sys.stdout)
    if outcome.failures:
        _print_failures(outcome.failures)
        raise typer.Exit(outcome.exit_code)


def _print_outcome(outcome: RunOutcome, config: RunConfig, *, wide: bool, open_page: bool) -> None:
    if outcome.elsewhere:
        typer.echo("\n" + paragraph(outcome.elsewhere))
    rows = bool(outcome.rows)
    if rows and config.is_quick:
        typer.echo(f"\n{QUICK_NOTE}")
    if rows:
        typer.echo("\n" + registry.get("leaderboards", "terminal")([outcome.folder / "table.json"], wide=wide))
    for warning in (*outcome.warnings, *_unchecked(config)):
        typer.echo("\n" + paragraph(f"Note: {warning}"))
    name = shlex.quote(run_name(outcome.folder))
    commands = {"What each model wrote": f"adaptive-bench samples {name}"} if rows else {}
    if rows and not open_page:
        commands["The page"] = f"adaptive-bench leaderboard build {name} --open"
    if not rows and not outcome.elsewhere:  # it would do here what was handed to others
        commands["The same again"] = run_command(outcome.folder, registry.plugin_files())
    for what, command in commands.items():
        typer.echo(f"\n{what}:\n  {pasteable(command)}")
    typer.echo(f"\n{'Folder of the run:' if outcome.elsewhere else 'Written to'} {outcome.folder}")
    if rows and open_page:
        # The command as a function: Typer's declarations are annotations, so all its other defaults hold.
        build([str(outcome.folder)], to=outcome.folder / "site", open_=True)


def _unchecked(config: RunConfig) -> list[str]:
    """Warnings about plugins' methods that were never checked, or whose decisions were found to use later text."""
    from adaptive_bench.capabilities import FILE_NAME, stored_matrix

    said = list[str]()
    for spec in map(MethodSpec.parse, config.methods):
        # With --table-only a run may have methods that are not installed here.
        if spec.name not in registry.names("methods") or not registry.is_foreign("methods", spec.name):
            continue
        matrix = stored_matrix(spec.name)
        if not matrix:
            said.append(
                f"The method {spec.name!r} ({registry.origin('methods', spec.name)}) was never checked: its scores may "
                f"rest on later text. `adaptive-bench check {spec.name} --plugin FILE --capabilities {FILE_NAME}` in "
                f"the folder of its file checks it."
            )
        causality = matrix.get(str(spec), {}).get("causality", "-")
        if spec.semantics == "bench" and causality not in ("-", "C0"):
            said.append(
                f"`adaptive-bench check` found that the decisions of {str(spec)!r} depend on more than earlier text "
                f"(causality {causality}): its scores are not those of a model that writes."
            )
    return list(dict.fromkeys(said))


def _print_failures(failures: Sequence[Failure]) -> None:
    """Print every cause of failure once, with the work that it affected."""
    by_cause: dict[str, list[Failure]] = {}
    for failure in failures:
        by_cause.setdefault(f"{failure.kind}: {failure.reason}", []).append(failure)
    for cause, failed in by_cause.items():
        log = next((failure.log for failure in failed if failure.log), None)  # they share a cause, so one log is enough
        works = ", ".join(failure.work for failure in failed)
        say("\n" + paragraph(f"Failed: {works}: {cause}{f' Log: {log}' if log else ''}"), sys.stderr)
        if debugging():
            say("\n".join(dict.fromkeys(failure.trace for failure in failed)), sys.stderr)
    if any(failure.was_tried for failure in failures):
        say("\nThe same command tries again what failed and keeps the rest.", sys.stderr)
