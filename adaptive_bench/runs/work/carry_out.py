"""Carries out the work of a plan: in this process, or in several when the backbone is small and there are cores to use.

Work that fails is reported and does not stop the rest; only what builds on it is left out.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from pathlib import Path

import torch

from adaptive_bench import processes
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError
from adaptive_bench.jobs.failure import Failure
from adaptive_bench.jobs.job import JobGroup, has_own_process, run_job
from adaptive_bench.jobs.launchers import LaunchRequest, PendingJob
from adaptive_bench.jobs.overall_progress import OverallProgress
from adaptive_bench.jobs.watchdog import Limits, watched
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.cost.estimate import Estimator, steps_left
from adaptive_bench.runs.planning.backbones import find_backbone, find_device
from adaptive_bench.runs.planning.cells import Cell, Sweep
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.share import WHOLE, Share
from adaptive_bench.runs.records.folders import Record
from adaptive_bench.runs.work.jobs import EvaluationJob, RunJobGroup, TrainingJob
from adaptive_bench.runs.work.overwrite import Overwrite, allowed
from adaptive_bench.spec import MethodSpec

# A larger backbone keeps all cores busy by itself.
_SMALL_BACKBONE_BYTES = 100_000_000
_MOST_PROCESSES = 8


def carry_out(
    plan: Plan,
    reporter: Reporter,
    workers: int | None = None,
    estimator: Estimator | None = None,
    share: Share = WHOLE,
    overwrite: Overwrite = Overwrite.only_missing,
) -> list[Failure]:
    """Do everything of a plan, or of a share of it, that is not on disk yet and that `overwrite` allows; gives back
    what was not done.

    Args:
        workers: Processes to use at once; `None` decides by the size of the backbone and the number of cores. One is
            this process itself, unless methods of plugins are among them: these, and then ours too, have processes of
            their own (`jobs.pool`).
        estimator: Knows how long each part will take; by default from the records alone.
    """
    limits = limits_of(plan.config)
    if limits.timeout_s is not None and not processes.world().is_single:
        raise UsageError(
            "--cell-timeout ends the process of a job, but torchrun's processes do all of them together. Leave it out "
            "and let the scheduler's own time limit end the command."
        )
    _settle(plan)
    groups, left_out = allowed(groups_left(plan, estimator or Estimator(plan.config.out), share), overwrite)
    jobs = [job for group in groups for job in group.jobs]
    if not jobs:
        return left_out
    workers = min(workers or useful_processes(plan.config), len(jobs))
    with OverallProgress(reporter, [job.estimate for job in jobs], workers) as overall:
        if workers == 1 and limits.timeout_s is None and not any(map(has_own_process, jobs)):
            return left_out + _one_after_the_other(groups, overall, limits)
        from adaptive_bench.jobs.pool import in_parallel  # a process that never ends is ended from outside

        return left_out + in_parallel(groups, overall, workers, limits)


def limits_of(config: RunConfig) -> Limits:
    """Of each job of a run."""
    return Limits(config.cell_timeout and 60 * config.cell_timeout, 60 * config.stall_warning or None)


def launch_request(
    plan: Plan,
    folder: Path,
    reporter: Reporter,
    workers: int | None = None,
    estimator: Estimator | None = None,
    share: Share = WHOLE,
    overwrite: Overwrite = Overwrite.only_missing,
    resources: Path | None = None,
) -> LaunchRequest:
    """The arguments of `carry_out` for a launcher, which may do it here or give it to other machines.

    Args:
        folder: Of the run.
        resources: YAML file for the launcher.
    """
    estimator = estimator or Estimator(plan.config.out)
    pending = partial(cells_left, plan, estimator, share, overwrite)
    run_here = partial(carry_out, plan, reporter, workers, estimator, share, overwrite)
    return LaunchRequest(folder, pending, run_here, resources)


def _settle(plan: Plan) -> None:
    """Say of finished work that it is done where a killed process could not."""
    for cell in plan.cells:
        if cell.finished:
            cell.record.settle()
    for sweep in plan.sweeps:
        if sweep.is_complete:
            sweep.record.settle()


def groups_left(plan: Plan, estimator: Estimator, share: Share = WHOLE) -> list[RunJobGroup]:
    """The work that is left, grouped by cell.

    A share has the trainings its cells start from as well, unless they have failed where they belong.
    """
    groups: list[RunJobGroup] = []
    cells = share.of(plan)
    mine = {cell.folder for cell in cells}
    untrained = {cell.folder for cell in plan.untrained}
    bases = {base.folder for cell in cells if cell.folder in untrained for base in _bases(cell)} & untrained - mine
    by_cell: defaultdict[Path, list[Sweep]] = defaultdict(list)
    for sweep in plan.sweeps:
        if sweep.cell.folder in mine and sweep.points_left():
            by_cell[sweep.cell.folder].append(sweep)
    for cell in plan.cells:
        if cell.folder in bases and cell.record.state != "failed":
            groups.append(JobGroup(_training(cell, plan.config, estimator)))
        if cell.folder not in mine:
            continue
        by_spec: defaultdict[MethodSpec, list[Sweep]] = defaultdict(list)
        for sweep in by_cell[cell.folder]:
            by_spec[sweep.spec].append(sweep)
        evaluations = tuple(_evaluation(tuple(sweeps), estimator) for sweeps in by_spec.values())
        training = _training(cell, plan.config, estimator) if cell.folder in untrained else None
        if training or evaluations:
            groups.append(JobGroup(training, evaluations))
    return groups


def cells_left(plan: Plan, estimator: Estimator, share: Share, overwrite: Overwrite) -> list[PendingJob]:
    """The cells of a share with work left that may be done, each after the one it starts from."""
    wanted = {cell.folder for cell in share.of(plan)}
    groups, _ = allowed(groups_left(plan, estimator, share), overwrite)
    cells = [group.jobs[0].cell for group in groups]
    pending = [PendingJob(cell.folder.name, _depth(cell)) for cell in cells if cell.folder in wanted]
    return sorted(pending, key=lambda job: job.depth)


def _depth(cell: Cell) -> int:
    """How many unfinished trainings must come before this one's."""
    return 0 if cell.base is None or cell.base.finished else 1 + _depth(cell.base)


def _training(cell: Cell, config: RunConfig, estimator: Estimator) -> TrainingJob:
    seconds = estimator.training(cell).seconds
    return TrainingJob(cell, config, seconds, seconds / max(1, steps_left(cell)))


def _evaluation(sweeps: tuple[Sweep, ...], estimator: Estimator) -> EvaluationJob:
    points = tuple(estimator.point(sweep).seconds for sweep in sweeps)
    return EvaluationJob(sweeps, sum(estimator.sweep(sweep).seconds for sweep in sweeps), points)


def left(plan: Plan) -> list[Failure]:
    """What a plan still lacks, and why as far as the records know."""
    untrained = plan.untrained
    failures = [_why(str(cell), cell.record) for cell in untrained]
    missing = {cell.folder for cell in untrained}
    for sweep in plan.sweeps:
        if sweep.cell.folder not in missing and not sweep.is_complete:
            failures.append(_why(str(sweep), sweep.record))
    return failures


def _why(work: str, record: Record) -> Failure:
    state = record.state
    if state == "failed":
        return Failure(work, record.reason, "Failed before", record.folder / "log.txt")
    about = {"planned": "it was not begun", "running": f"{record.holder} is running it"}
    reason = about.get(state, "its process has ended before it was done")
    return Failure(work, f"{reason}. Re-run the command to do it.", "Not finished")


def _bases(cell: Cell) -> list[Cell]:
    return [] if cell.base is None else [cell.base, *_bases(cell.base)]


def _one_after_the_other(groups: list[RunJobGroup], reporter: Reporter, limits: Limits) -> list[Failure]:
    failures = []
    for group in groups:
        for job in group.jobs:
            with watched(job, limits, reporter) as told:
                found = run_job(job, told)
            failures += found
            for failure in found:
                reporter.line(f"Failed: {failure}")
            if found and job is group.first:
                break
    return failures


def useful_processes(config: RunConfig) -> int:
    """One core for each small backbone; a large one, or a GPU, is not shared."""
    size_bytes = find_backbone(config.model).weight_bytes
    if find_device(config.device).type != "cpu" or size_bytes is None or size_bytes > _SMALL_BACKBONE_BYTES:
        return 1
    return min(torch.get_num_threads(), _MOST_PROCESSES)
