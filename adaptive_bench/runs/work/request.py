"""The work of a plan as a launcher is asked for it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from adaptive_bench.jobs.launchers import LaunchRequest, PendingJob
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.cost.estimate import Estimator
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.shard import WHOLE, Shard
from adaptive_bench.runs.planning.works import TrainingRun
from adaptive_bench.runs.work.carry_out import carry_out
from adaptive_bench.runs.work.groups import groups_left
from adaptive_bench.runs.work.overwrite import Overwrite, allowed


def launch_request(
    plan: Plan,
    folder: Path,
    reporter: Reporter,
    workers: int | None = None,
    estimator: Estimator | None = None,
    shard: Shard = WHOLE,
    overwrite: Overwrite = Overwrite.only_missing,
    resources: Path | None = None,
) -> LaunchRequest:
    """The arguments of `carry_out` for a launcher, which may do it here or give it to other machines.

    Args:
        folder: Of the run.
        resources: YAML file for the launcher.
    """
    estimator = estimator or Estimator(plan.config.out)
    pending = partial(cells_left, plan, estimator, shard, overwrite)
    run_here = partial(carry_out, plan, reporter, workers, estimator, shard, overwrite)
    return LaunchRequest(folder, pending, run_here, resources)


def cells_left(plan: Plan, estimator: Estimator, shard: Shard, overwrite: Overwrite) -> list[PendingJob]:
    """The trainings of a shard with work left that may be done, each after the one it starts from."""
    wanted = {training.folder for training in shard.of(plan)}
    groups, _ = allowed(groups_left(plan, estimator, shard), overwrite)
    trainings = [group.jobs[0].training for group in groups]
    pending = [
        PendingJob(training.folder.name, _depth(training)) for training in trainings if training.folder in wanted
    ]
    return sorted(pending, key=lambda job: job.depth)


def _depth(training: TrainingRun) -> int:
    """How many unfinished trainings must come before this one's."""
    return 0 if training.base is None or training.base.finished else 1 + _depth(training.base)
