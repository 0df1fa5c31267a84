"""Carries out a whole run: plan, work, table. Results on disk are not computed again; an incomplete table says so."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_bench import processes, registry, spawn
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, UsageError, message_of
from adaptive_bench.jobs.job import Failure
from adaptive_bench.jobs.worker import StdoutForwarder
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.registry import check_name
from adaptive_bench.runs.backbone_source import find_backbone
from adaptive_bench.runs.conditions import run_folder, write_beginning
from adaptive_bench.runs.launching import launch_request, stoppable, unfinished_work, wait_for_others
from adaptive_bench.runs.run_checks import Preflight, preflight
from adaptive_bench.runs.run_plan import WHOLE, Shard, checked_config, manifest_of, plan, plan_on_disk, without_groups
from adaptive_bench.runs.spared_sites import measured_sites
from adaptive_bench.runs.table_files import write_table
from adaptive_bench.runs.work_jobs import Overwrite, remove_results, work_as_worker
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.store.keys import run_key
from adaptive_bench.store.manifest import read
from adaptive_bench.store.results import ending_of, read_table
from adaptive_bench.store.runs import KEY_DIGITS


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
    overwrite: Overwrite | str = Overwrite.only_missing,
    wait_s: float | None = None,
) -> RunOutcome:
    """Train, evaluate and match everything a config names, and write the table.

    Args:
        jobs: Processes to use; `None` decides by the size of the backbone and the number of cores.
        shard: The part to do; the command that finishes the last part writes the table.
        launcher: Name of the launcher that does the work, see `adaptive_bench.jobs.launchers`.
        resources: YAML file for the launcher.
        table_only: Compute nothing, and write the table of what is on disk with missing work as failures. The same as
            `overwrite="only-cache"`.
        overwrite: What becomes of results that are on disk (see `work_jobs.Overwrite`).
        wait_s: With `table_only`: wait until other processes have done all work, or none has worked for this long.

    Raises:
        UsageError: The config names something that does not exist or does not fit together.
        EnvironmentProblem: Model or data cannot be reached, or the output folder cannot be written.
        Interrupted: Ctrl-C, or a scheduler's signal; finished work is kept and the same command continues.
    """
    spawn.check_main()
    check_name("launchers", launcher)
    config, reporter = checked_config(config), reporter or SilentReporter()
    overwrite, world = Overwrite(overwrite), processes.world()
    reads = (table_only or overwrite is Overwrite.only_cache) and wait_s is None
    if reads and world.is_main_process and (found := finished_elsewhere(config)) is not None:
        return found
    config = without_groups(config)
    folder = run_folder(config)
    if not world.is_main_process:
        work_as_worker()
        return RunOutcome([], folder, [], [], is_main_process=False)
    try:
        with redirect_stdout(StdoutForwarder(reporter)):
            if table_only or overwrite is Overwrite.only_cache:
                return tabulate(config, folder, reporter, wait_s)
            jobs = jobs if world.is_single else 1
            return compute(config, folder, reporter, jobs, shard, launcher, resources, overwrite)
    finally:
        world.shutdown()


def compute(
    config: RunConfig,
    folder: Path,
    reporter: Reporter,
    jobs: int | None,
    shard: Shard,
    launcher: str,
    resources: Path | None,
    overwrite: Overwrite,
) -> RunOutcome:
    """Do the remaining work of a run, and write its table unless other commands have work left.

    Arguments as for `run`.
    """
    start_s, launch_with = time.perf_counter(), registry.get("launchers", launcher)
    with atomic.writable(config.out):
        config.out.mkdir(parents=True, exist_ok=True)
    known = prepare(config, reporter, folder, jobs, shard, overwrite)
    how = (jobs, known.estimator, shard, overwrite, resources)
    request = launch_request(known.plan, folder, reporter, *how)
    with stoppable(folder, config):
        launched = launch_with(request)
    failures, elsewhere = list(launched.failures), launched.submitted
    if not elsewhere and not shard.is_whole and (others := unfinished_work(known.plan, folder)):
        elsewhere = f"{len(others)} pieces of work are left to other shares of the run, among them {others[0].work}."
    if elsewhere:
        return RunOutcome([], folder, known.notes, failures, elsewhere)
    return write_outcome(known, folder, failures, start_s)


def prepare(
    config: RunConfig,
    reporter: Reporter,
    folder: Path,
    jobs: int | None,
    shard: Shard,
    overwrite: Overwrite,
) -> Preflight:
    """Check everything that a run will need, and remove results that are to be overwritten."""
    if overwrite is Overwrite.always:
        with suppress(EnvironmentProblem, UsageError):  # the checks below report what is wrong
            measured_sites(without_groups(config), find_backbone(config.model), reporter)
        # Check before anything is removed, and in an empty folder, so that a damaged record cannot stop the removal.
        preflight(config.model_copy(update={"out": config.out / "overwritten"}), reporter, jobs, timed=False)
        remove_results(plan(config), shard)
    known = preflight(config, reporter, jobs, timed=shard.is_whole)
    return _begun(folder, config, reporter, known, overwrite)


def prepare_table(config: RunConfig, reporter: Reporter, folder: Path, *, from_manifest: bool) -> Preflight:
    """Find the records that a table is made from.

    Args:
        from_manifest: Whether to read the run's manifest if there is one, which needs neither model nor data.
    """
    known = plan_on_disk(folder, config, reporter) if from_manifest else None
    return _begun(folder, config, reporter, Preflight(known or plan(config, reporter)), Overwrite.only_cache)


def _begun(folder: Path, config: RunConfig, reporter: Reporter, known: Preflight, overwrite: Overwrite) -> Preflight:
    """Write the run's config and manifest; the manifest of a finished table stays until another table is written."""
    for note in known.notes:
        reporter.line(f"Note: {note}")
    write_beginning(folder, config, computes=overwrite is not Overwrite.only_cache)
    if not (holds_finished_table(folder) and _has_list(folder, reporter)):
        manifest_of(known.plan).write(folder)
    return known


def _has_list(folder: Path, reporter: Reporter) -> bool:
    try:
        return read(folder) is not None
    except EnvironmentProblem as problem:
        reporter.line(f"{message_of(problem)} That is done now.")
        return False


def tabulate(config: RunConfig, folder: Path, reporter: Reporter, wait_s: float | None) -> RunOutcome:
    """Write the table of what is on disk, with missing work as failures. Arguments as for `run`.

    Raises:
        EnvironmentProblem: A finished table would be replaced by one that lacks something.
    """
    start_s = time.perf_counter()
    with atomic.writable(config.out):
        config.out.mkdir(parents=True, exist_ok=True)
    if wait_s is not None:
        known = prepare_table(config, reporter, folder, from_manifest=False)
        with stoppable(folder, config):
            wait_for_others(known.plan, folder, reporter, wait_s)
        return _tabulated(known, folder, start_s)
    return _tabulated(prepare_table(config, reporter, folder, from_manifest=True), folder, start_s)


def _tabulated(known: Preflight, folder: Path, start_s: float) -> RunOutcome:
    failures = unfinished_work(known.plan, folder)
    if (kept := kept_table(folder, failures)) is not None:
        raise EnvironmentProblem(
            f"{kept} Put the records back, or give the command without --table-only: it computes what is missing."
        )
    return write_outcome(known, folder, failures, start_s)


def finished_elsewhere(config: RunConfig) -> RunOutcome | None:
    """The stored table of a finished run if a plugin's method is not registered here.

    `None` if all methods are registered: then the table is made from the records.

    Raises:
        UsageError: The plugin is needed, because the run is not finished.
        EnvironmentProblem: The table cannot be read.
    """
    parsed = [MethodSpec.parse(text).name for text in config.methods]
    missing = [name for name in parsed if name not in registry.names("methods")]
    if not missing:
        return None
    key = run_key(config.model_dump(mode="json"))
    folder = next((config.out / "runs").glob(f"*-{key[:KEY_DIGITS]}"), None)
    about = {} if folder is None else ending_of(folder)
    if about.get("state") != "done":
        registry.check_name("methods", missing[0])
    assert folder is not None
    kept = f"The plugin of {missing[0]!r} is not here: the table stays as it is."
    return RunOutcome(read_table(folder / "table.json"), folder, [*about["warnings"], kept], [])


def write_outcome(known: Preflight, folder: Path, failures: list[Failure], start_s: float) -> RunOutcome:
    """Write the table of a run whose work has ended, unless it would replace a finished table by a poorer one."""
    notes = known.notes if known.facts is not None else notes_before(folder)
    if (kept := kept_table(folder, failures)) is not None:
        return RunOutcome([], folder, [*notes, kept], failures)
    rows, warnings = write_table(known.plan, folder, failures, notes, start_s)
    return RunOutcome(rows, folder, warnings, failures)


def holds_finished_table(folder: Path) -> bool:
    """Whether the table on disk is of a finished run; also true if its ending can no longer be read."""
    try:
        about = ending_of(folder)
    except EnvironmentProblem:
        return True
    return about.get("state") == "done" or (not about and (folder / "table.json").is_file())


def kept_table(folder: Path, failures: Sequence[Failure]) -> str | None:
    """Why a table with missing work does not replace the finished one on disk; `None` if it may be written."""
    if not failures or not holds_finished_table(folder):
        return None
    return (
        f"A finished table is not replaced by a poorer one, but for the table in {str(folder)!r} {len(failures)} "
        f"piece(s) of work are missing by now, the first: {failures[0].work}. The table stays as it is."
    )


def notes_before(folder: Path) -> list[str]:
    """Notes from before the run, kept if all work was on disk already and nothing was checked again."""
    try:
        return list(ending_of(folder).get("notes", []))
    except EnvironmentProblem:  # the damaged file is written again now
        return []
