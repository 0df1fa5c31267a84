"""Carries out the work of a plan, in several processes where the backbone is small and there are cores to use."""

from __future__ import annotations

from adaptive_bench.jobs.job import Failure
from adaptive_bench.jobs.pool import run_groups
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.cost.estimate import Estimator
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.shard import WHOLE, Shard
from adaptive_bench.runs.work.groups import groups_left
from adaptive_bench.runs.work.left import settle
from adaptive_bench.runs.work.overwrite import Overwrite, allowed
from adaptive_bench.runs.work.resources import limits_of, useful_processes


def carry_out(
    plan: Plan,
    reporter: Reporter,
    workers: int | None = None,
    estimator: Estimator | None = None,
    shard: Shard = WHOLE,
    overwrite: Overwrite = Overwrite.only_missing,
) -> list[Failure]:
    """Do everything of a plan, or of a shard of it, that is not on disk yet and that `overwrite` allows; gives back
    what was not done.

    Args:
        workers: Processes to use at once (`run_groups`); `None` decides by the size of the backbone and the number of
            cores.
        estimator: Knows how long each part will take; by default from the records alone.
    """
    limits = limits_of(plan.config)
    settle(plan)
    groups, left_out = allowed(groups_left(plan, estimator or Estimator(plan.config.out), shard), overwrite)
    if not groups:
        return left_out
    jobs = [job for group in groups for job in group.jobs]
    seconds = sum(job.estimate.seconds for job in jobs)
    workers = min(workers or useful_processes(plan.config, seconds), len(jobs))
    failures = run_groups(groups, reporter, workers, limits)
    settle(plan)  # a worker may have been killed right before it could say so
    return left_out + failures
