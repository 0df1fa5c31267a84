"""A whole run: plan, work, table. What is on disk is never computed again; what is incomplete is marked as such."""

from __future__ import annotations

from contextlib import redirect_stdout
from numbers import Real
from pathlib import Path
from typing import Any

from adaptive_bench import processes, spawn
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError
from adaptive_bench.jobs.stdout_forwarder import StdoutForwarder
from adaptive_bench.progress import Reporter, checked_reporter
from adaptive_bench.registry import check_name
from adaptive_bench.runs.computation import compute
from adaptive_bench.runs.outcome.naming import run_folder
from adaptive_bench.runs.outcome.run_outcome import RunOutcome
from adaptive_bench.runs.planning.plan import checked_config, without_groups
from adaptive_bench.runs.planning.shard import WHOLE, Shard
from adaptive_bench.runs.tabulation import finished_elsewhere, tabulate
from adaptive_bench.runs.work.overwrite import Overwrite
from adaptive_bench.runs.work.worker import work_as_worker
from adaptive_bench.store.run_files import check_files
from adaptive_bench.validation import as_path, is_count


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
        shard: The part to do; whoever finishes the last part writes the table.
        launcher: Where the work is done, see `adaptive_bench.jobs.launchers`.
        resources: YAML file for the launcher.
        table_only: Do nothing that is left; write the table of what is there, with what is missing as failures. The
            same as to overwrite `only-cache`.
        overwrite: What becomes of results that are on disk (see `runs.work.overwrite`).
        wait_s: With `table_only`: wait until others have done everything, or nobody has been at any of it for so long.

    Raises:
        UsageError: The config names something that does not exist or does not fit together.
        EnvironmentProblem: Model or data cannot be reached, or the output folder cannot be written.
        Interrupted: Ctrl-C, or a scheduler's signal; finished work is kept and the same command continues.
    """
    spawn.check_main()
    config, reporter = checked_config(config), checked_reporter(reporter)
    overwrite, world = _checked(jobs, shard, launcher, resources, overwrite, wait_s), processes.world()
    reads = (table_only or overwrite is Overwrite.only_cache) and wait_s is None
    if reads and world.is_main_process and (found := finished_elsewhere(config)) is not None:
        return found
    config = without_groups(config)
    folder = run_folder(config)
    if not world.is_main_process:
        work_as_worker()
        return RunOutcome([], folder, [], [], is_main_process=False)
    check_files(folder)  # before what it is to hold takes hours
    try:
        with redirect_stdout(StdoutForwarder(reporter)):
            if table_only or overwrite is Overwrite.only_cache:
                return tabulate(config, folder, reporter, wait_s)
            jobs = jobs if world.is_single else 1
            return compute(config, folder, reporter, jobs, shard, launcher, resources, overwrite)
    finally:
        world.shutdown()


def _checked(jobs: Any, shard: Any, launcher: Any, resources: Any, overwrite: Any, wait_s: Any) -> Overwrite:
    """What becomes of results, where the other arguments of a run are what they have to be.

    Raises:
        UsageError: With the rule of the first that is not.
    """
    check_name("launchers", launcher)
    choices = ", ".join(map(repr, map(str, Overwrite)))
    is_wait = isinstance(wait_s, Real) and not isinstance(wait_s, bool) and float(wait_s) >= 0
    rules: dict[str, tuple[Any, bool, str]] = {
        "jobs": (jobs, jobs is None or is_count(jobs), "a whole number of at least 1, or None to have it chosen"),
        "shard": (shard, isinstance(shard, Shard), "a part of a run, such as Shard(2, 8)"),
        "overwrite": (overwrite, overwrite in list(Overwrite), f"one of {choices}"),
        "wait_s": (wait_s, wait_s is None or is_wait, "a number of seconds, or None"),
    }
    for name, (value, holds, rule) in rules.items():
        if not holds:
            raise UsageError(f"{name} of a run is {rule}, got {value!r}. Correct it, or leave it out.")
    if resources is not None:
        as_path(resources, "The resources of a launcher are a YAML file")
    return Overwrite(overwrite)
