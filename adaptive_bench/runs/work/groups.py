"""The jobs that a plan comes down to, grouped by what they build on."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from adaptive_bench.config import RunConfig
from adaptive_bench.jobs.job import JobGroup
from adaptive_bench.jobs.plugins import needs_own_process
from adaptive_bench.progress import DialCalibrated, PointMeasured, UnitDone
from adaptive_bench.runs.cost.estimate import Estimator, steps_left
from adaptive_bench.runs.planning.cells import Cell, Sweep
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.share import WHOLE, Share
from adaptive_bench.runs.work.jobs import EvaluationJob, RunJobGroup, TrainingJob
from adaptive_bench.spec import MethodSpec


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
        together: defaultdict[tuple[MethodSpec, str], list[Sweep]] = defaultdict(list)
        for sweep in by_cell[cell.folder]:  # a task of a plugin that ends its process takes no other with it
            alone = sweep.task if needs_own_process(sweep.task, "tasks") else ""
            together[sweep.spec, alone].append(sweep)
        evaluations = tuple(_evaluation(tuple(sweeps), estimator) for sweeps in together.values())
        training = _training(cell, plan.config, estimator) if cell.folder in untrained else None
        if training or evaluations:
            groups.append(JobGroup(training, evaluations))
    return groups


def _bases(cell: Cell) -> list[Cell]:
    return [] if cell.base is None else [cell.base, *_bases(cell.base)]


def _training(cell: Cell, config: RunConfig, estimator: Estimator) -> TrainingJob:
    seconds = estimator.training(cell).seconds
    return TrainingJob(cell, config, seconds, seconds / max(1, steps_left(cell)))


def _evaluation(sweeps: tuple[Sweep, ...], estimator: Estimator) -> EvaluationJob:
    unit_s: dict[UnitDone, float] = {}
    for sweep in sweeps:
        unit_s[DialCalibrated(str(sweep.folder))] = estimator.calibration(sweep).seconds
        unit_s[PointMeasured(str(sweep.folder))] = estimator.point(sweep).seconds
    return EvaluationJob(sweeps, sum(estimator.sweep(sweep).seconds for sweep in sweeps), unit_s)
