"""Computes what is left of a run, and writes its table."""

from __future__ import annotations

import time
from pathlib import Path

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.launching import launch
from adaptive_bench.runs.outcome.run_outcome import RunOutcome
from adaptive_bench.runs.planning.shard import Shard
from adaptive_bench.runs.preparation import prepare
from adaptive_bench.runs.tabulation import write_outcome
from adaptive_bench.runs.work.left import left
from adaptive_bench.runs.work.overwrite import Overwrite
from adaptive_bench.runs.work.request import launch_request
from adaptive_bench.store import atomic


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
    """Do what is left of a run, and write its table once nothing is left to others. Arguments as for `run`."""
    start_s, launch_with = time.perf_counter(), registry.get("launchers", launcher)
    with atomic.writable(config.out):
        config.out.mkdir(parents=True, exist_ok=True)
    known = prepare(config, reporter, folder, jobs, shard, overwrite)
    how = (jobs, known.estimator, shard, overwrite, resources)
    launched = launch(launch_with, launch_request(known.plan, folder, reporter, *how), config)
    failures, elsewhere = list(launched.failures), launched.submitted
    if not elsewhere and not shard.is_whole and (others := left(known.plan, folder)):
        elsewhere = f"{len(others)} pieces of work are left to other shares of the run, among them {others[0].work}."
    if elsewhere:
        return RunOutcome([], folder, known.notes, failures, elsewhere)
    return write_outcome(known, folder, failures, start_s)
