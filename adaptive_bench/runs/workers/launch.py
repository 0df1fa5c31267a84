"""Carries out the work of a plan: in this process, or in several when the backbone is small and there are cores to use.

Work that fails is reported and does not stop the rest; only what builds on it is left out.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import torch

from adaptive_bench import processes
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError
from adaptive_bench.progress import Meter, Reporter
from adaptive_bench.runs.cost.estimate import Estimator
from adaptive_bench.runs.cost.forecast import Forecast
from adaptive_bench.runs.planning.backbones import find_backbone, find_device
from adaptive_bench.runs.planning.cells import Cell, Sweep
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.share import WHOLE, Share
from adaptive_bench.runs.records.folders import Record
from adaptive_bench.runs.workers.chains import Chain, Failure, Measuring, Training, attempt, stands_apart
from adaptive_bench.runs.workers.overall import Clock, SweepTime
from adaptive_bench.runs.workers.overwrite import Overwrite, allowed
from adaptive_bench.runs.workers.watchdog import Limits, watched
from adaptive_bench.spec import MethodSpec

# A larger backbone keeps all cores busy by itself.
_SMALL_BACKBONE_BYTES = 100_000_000
_MOST_PROCESSES = 8


def carry_out(
    plan: Plan,
    reporter: Reporter,
    jobs: int | None = None,
    estimator: Estimator | None = None,
    share: Share = WHOLE,
    overwrite: Overwrite = Overwrite.only_missing,
) -> list[Failure]:
    """Do everything of a plan, or of a share of it, that is not on disk yet and that `overwrite` allows; gives back
    what was not done.

    Args:
        jobs: Processes to use at once; `None` decides by the size of the backbone and the number of cores. One is this
            process itself, unless methods of plugins are among them: these, and then ours too, have processes of their
            own (`workers.pool`).
        estimator: Knows how long each part will take; by default from the records alone.
    """
    limits = Limits.of(plan.config)
    if limits.timeout_s is not None and not processes.world().is_single:
        raise UsageError(
            "--cell-timeout ends the process of a piece of work, but torchrun's processes do all of them together. "
            "Leave it out and let the scheduler's own time limit end the command."
        )
    _settle(plan)
    estimator = estimator or Estimator(plan.config.out)
    chains, left_out = allowed(chains_left(plan, estimator, share), overwrite)
    works = [work for chain in chains for work in chain.works]
    if not works:
        return left_out
    jobs = min(jobs or useful_processes(plan.config), len(works))
    forecast = Forecast([work.piece for work in works], jobs, estimator.alone)
    with reporter.task("run", forecast.left_s(0.0)) as bar:
        overall = Clock(bar, forecast)
        if jobs == 1 and limits.timeout_s is None and not any(map(stands_apart, works)):
            return left_out + _one_after_the_other(chains, reporter, overall, limits)
        from adaptive_bench.runs.workers.pool import in_parallel  # a process that never ends is ended from outside

        return left_out + in_parallel(chains, reporter, overall, jobs, limits)


def _settle(plan: Plan) -> None:
    """Say of finished work that it is done where a killed process could not."""
    for cell in plan.cells:
        if cell.finished:
            cell.record.settle()
    for sweep in plan.sweeps:
        if sweep.is_complete:
            sweep.record.settle()


def chains_left(plan: Plan, estimator: Estimator, share: Share = WHOLE) -> list[Chain]:
    """The work that is left, grouped by cell.

    A share has the trainings its cells start from as well, unless they have failed where they belong.
    """
    chains = []
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
            chains.append(Chain(Training(cell, plan.config, estimator.training(cell).seconds), ()))
        if cell.folder not in mine:
            continue
        by_spec: defaultdict[MethodSpec, list[Sweep]] = defaultdict(list)
        for sweep in by_cell[cell.folder]:
            by_spec[sweep.spec].append(sweep)
        measurings = tuple(_measuring(tuple(sweeps), estimator) for sweeps in by_spec.values())
        is_left = cell.folder in untrained
        training = Training(cell, plan.config, estimator.training(cell).seconds) if is_left else None
        if training or measurings:
            chains.append(Chain(training, measurings))
    return chains


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
    about = {"planned": "it was not begun", "running": f"{record.holder} is at it"}
    reason = about.get(state, "its process has ended before it was done")
    return Failure(work, f"{reason}. The run's command goes on with it.", "Not finished")


def _bases(cell: Cell) -> list[Cell]:
    return [] if cell.base is None else [cell.base, *_bases(cell.base)]


def _measuring(sweeps: tuple[Sweep, ...], estimator: Estimator) -> Measuring:
    shares = [
        SweepTime(
            sweep.task,
            estimator.sweep(sweep).seconds,
            point_s=estimator.point(sweep).seconds,
            calibration_s=estimator.calibration(sweep).seconds,
        )
        for sweep in sweeps
    ]
    return Measuring(sweeps, tuple(shares))


def _one_after_the_other(chains: list[Chain], reporter: Reporter, overall: Meter, limits: Limits) -> list[Failure]:
    failures = []
    for chain in chains:
        for work in chain.works:
            with watched(work, limits, reporter) as told:
                found = attempt(work, told, overall)
            failures += found
            for failure in found:
                reporter.line(f"Failed: {failure}")
            if found and work is chain.training:
                break
    return failures


def useful_processes(config: RunConfig) -> int:
    """One core for each small backbone; a large one, or a GPU, is not shared."""
    size_bytes = find_backbone(config.model).weight_bytes
    if find_device(config.device).type != "cpu" or size_bytes is None or size_bytes > _SMALL_BACKBONE_BYTES:
        return 1
    return min(torch.get_num_threads(), _MOST_PROCESSES)
