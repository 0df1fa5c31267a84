"""A whole run: plan, work, table. What is on disk is never computed again; what is incomplete is marked as such."""

from __future__ import annotations

from contextlib import redirect_stdout
from pathlib import Path

from adaptive_bench import processes, spawn
from adaptive_bench.config import RunConfig
from adaptive_bench.jobs.worker import StdoutForwarder
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.registry import check_name
from adaptive_bench.runs.computation import compute
from adaptive_bench.runs.outcome.naming import run_folder
from adaptive_bench.runs.outcome.run_outcome import RunOutcome
from adaptive_bench.runs.planning.plan import checked_config, without_groups
from adaptive_bench.runs.planning.shard import WHOLE, Shard
from adaptive_bench.runs.tabulation import finished_elsewhere, tabulate
from adaptive_bench.runs.work.overwrite import Overwrite
from adaptive_bench.runs.work.worker import work_as_worker


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
