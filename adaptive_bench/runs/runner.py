"""Carries out a whole run: plan, work, table. Results on disk are not computed again; an incomplete table says so."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from adaptive_bench import processes, registry
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.jobs.job import Failure
from adaptive_bench.jobs.launchers import LaunchRequest, LaunchResult
from adaptive_bench.jobs.worker import StdoutForwarder, check_main
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs import launching
from adaptive_bench.runs.launching import WHOLE, Shard
from adaptive_bench.runs.run_checks import Preflight, preflight
from adaptive_bench.runs.run_plan import Plan, plan, without_groups
from adaptive_bench.runs.run_table import method_facts, outcome_of
from adaptive_bench.runs.trained import manifest_of, plan_of, run_folder, write_beginning
from adaptive_bench.store import atomic, manifest
from adaptive_bench.store.keys import TABLES, canonical, run_key
from adaptive_bench.store.records import SCHEMA
from adaptive_bench.store.runs import ending_of, write_run
from adaptive_bench.tables.comparability import QUICK_NOTE
from adaptive_bench.tables.task_notes import floor_ceiling_notes, unparsable_notes


@dataclass(frozen=True)
class RunOutcome:
    """The result of a run.

    Attributes:
        rows: The table, as in `table.json`.
        folder: The folder that holds the table.
        warnings: What a reader of the table should know.
        failures: Work that could not be done; empty if the run is complete.
        is_main_process: Whether this is the main process; only the main process has a table.
        elsewhere: A sentence about work that is done elsewhere, if any; there is no table before that work ends.
    """

    rows: list[dict[str, Any]]
    folder: Path
    warnings: list[str]
    failures: list[Failure]
    elsewhere: str = ""
    is_main_process: bool = True

    @property
    def exit_code(self) -> int:
        """0 if everything was done, else 1."""
        return 1 if self.failures else 0


def run(
    config: RunConfig,
    reporter: Reporter | None = None,
    jobs: int | None = None,
    *,
    shard: Shard = WHOLE,
    launcher: str = "local",
    resources: Path | None = None,
    table_only: bool = False,
    wait_s: float | None = None,
) -> RunOutcome:
    """Train, evaluate and match everything a config names, and write the table.

    Args:
        jobs: Processes to use; `None` decides by the size of the backbone and the number of cores.
        shard: The part to do; the command that finishes the last part writes the table.
        launcher: Name of the launcher that does the work, see `adaptive_bench.jobs.launchers`.
        resources: YAML file for the launcher.
        table_only: Compute nothing, and write the table of what is on disk with missing work as failures.
        wait_s: With `table_only`: wait until other processes have done all work, or none has worked for this long.

    Raises:
        UsageError: The config names something that does not exist or does not fit together.
        EnvironmentProblem: Model or data cannot be reached, or the output folder cannot be written.
        Interrupted: Ctrl-C, or a scheduler's signal; finished work is kept and the same command continues.
    """
    check_main()
    launch_with = registry.get("launchers", launcher)
    config, reporter = without_groups(config), reporter or SilentReporter()
    world, folder, start_s = processes.world(), run_folder(config), time.perf_counter()
    if not world.is_main_process:
        launching.work_as_worker()
        return RunOutcome([], folder, [], [], is_main_process=False)
    with ExitStack() as stack:
        # After an error as well: the other processes wait for jobs until they are told that there are none.
        stack.callback(world.shutdown)
        # What plugins and libraries print becomes lines of the reporter, which may be drawing progress.
        stack.enter_context(redirect_stdout(StdoutForwarder(reporter)))
        with atomic.writable(config.out):
            config.out.mkdir(parents=True, exist_ok=True)
        jobs = jobs if world.is_single else 1  # torchrun's processes do each job together
        if table_only:
            # A run's manifest, if there is one, needs neither model nor data.
            listed = manifest.read(folder) if wait_s is None else None
            known = Preflight(plan(config, reporter) if listed is None else plan_of(config, listed, reporter))
        else:
            known = preflight(config, reporter, jobs, timed=shard.is_whole)
        for note in known.notes:
            reporter.line(f"Note: {note}")
        # Without `facts` all work was on disk and nothing was checked: the notes are those of before.
        notes = known.notes if known.facts is not None else list((_ending(folder) or {}).get("notes", []))
        write_beginning(folder, config, computes=not table_only)
        if not _holds_finished_table(folder):  # its manifest stays until another table is written
            manifest_of(known.plan).write(folder)
        with launching.stoppable(folder, config):
            if table_only and wait_s is not None:
                launching.wait_for_others(known.plan, folder, reporter, wait_s)
            if table_only:
                launched = LaunchResult(launching.unfinished_work(known.plan, folder))
            else:
                pending = partial(launching.cells_left, known.plan, shard)
                run_here = partial(launching.carry_out, known.plan, reporter, jobs, known.estimator, shard)
                launched = launch_with(LaunchRequest(folder, pending, run_here, resources))
        failures, elsewhere = list(launched.failures), launched.submitted
        if not (elsewhere or table_only or shard.is_whole) and (left := launching.unfinished_work(known.plan, folder)):
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            elsewhere = f"Left to other jobs of the run: {left[0].work}{more}."
        if elsewhere:
            return RunOutcome([], folder, [], failures, elsewhere)  # the notes were told at the start
        # Records of a finished run may have been removed since: its table then says more than a new one would.
        if not failures or not _holds_finished_table(folder):
            rows, warnings = write_table(known.plan, folder, failures, notes, start_s)
            return RunOutcome(rows, folder, warnings, failures)
        kept = (
            f"A finished table is not replaced by a poorer one, but for the table in {str(folder)!r} {len(failures)} "
            f"piece(s) of work are missing by now, the first: {failures[0].work}. The table stays as it is."
        )
        if table_only:
            raise EnvironmentProblem(
                f"{kept} Put the records back, or give the command without --table-only: it computes what is missing."
            )
        return RunOutcome([], folder, [*notes, kept], failures)


def _ending(folder: Path) -> dict[str, Any] | None:
    """How the run that has this folder ended, empty if it did not; `None` if that can no longer be read."""
    try:
        return ending_of(folder)
    except EnvironmentProblem:
        return None


def _holds_finished_table(folder: Path) -> bool:
    """Whether the table on disk is of a finished run; also true if its ending can no longer be read."""
    about = _ending(folder)
    return about is None or about.get("state") == "done" or (not about and (folder / "table.json").is_file())


def notes_on(rows: Sequence[Mapping[str, Any]], config: RunConfig) -> list[str]:
    """Notes about a quick run, scores at a task's floor or ceiling, and texts in which no answer is found."""
    about = f"{config.train.steps} steps, {config.evaluation.calibration_examples} calibration examples"
    quick = f"{QUICK_NOTE}: a first look, with {about} and at most {config.evaluation.limit} documents."
    notes = [*floor_ceiling_notes(rows, map(find_task, config.tasks)), *unparsable_notes(rows)]
    return [quick, *notes] if config.is_quick else notes


def write_table(
    whole: Plan, folder: Path, failures: Sequence[Failure], notes: Sequence[str], start_s: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """Match the measured points and write the table, which lacks what has failed; returns the rows, and what a reader
    should know about them.
    """
    config = whole.config
    found = outcome_of(whole)
    plain = [row.to_json() for row in found.rows]
    warnings = [*notes, *notes_on(plain, config), *found.warnings]
    about: dict[str, Any] = {
        "schema": SCHEMA,
        "tables": TABLES,
        "run_key": run_key(config.model_dump(mode="json")),
        "state": "partial" if failures else "done",
        "methods": config.methods,
        "tasks": config.tasks,
        "model": config.model,
        "seeds": config.seeds,
        "match_on": config.match_on,
        "match_phase": config.match_phase,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "took_s": time.perf_counter() - start_s,
        "records": [training.folder.name for training in whole.trainings],
        "notes": list(notes),
        "warnings": warnings,
        "failures": [str(failure) for failure in failures],
    }
    # A run counts as ended when it has `run.json`, so the files that hold its results are written before.
    atomic.write_text(folder / "table.json", atomic.json_text(plain))
    manifest_of(whole).write(folder)
    atomic.write_text(folder / "methods.json", atomic.json_text(method_facts(whole)))
    atomic.write_text(folder / "answers.json", canonical(found.answers) + "\n")
    write_run(folder, about)
    table = [folder / "table.json"]
    render = registry.get("leaderboards", "markdown")
    atomic.write_text(folder / "leaderboard.md", render(table, [str(failure) for failure in failures]))
    atomic.write_text(folder / "leaderboard.svg", registry.get("leaderboards", "svg")(table))
    return plain, warnings
