"""The jobs that a plan comes down to, grouped by what they build on."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from adaptive_bench.config import RunConfig
from adaptive_bench.jobs.job import JobGroup
from adaptive_bench.progress import DialCalibrated, PointMeasured, UnitDone
from adaptive_bench.runs.cost.estimate import Estimator, steps_left
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.shard import WHOLE, Shard
from adaptive_bench.runs.planning.works import DialEvaluation, TrainingRun
from adaptive_bench.runs.work.jobs import EvaluationJob, RunJobGroup, TrainingJob
from adaptive_bench.spec import MethodSpec


def groups_left(plan: Plan, estimator: Estimator, shard: Shard = WHOLE) -> list[RunJobGroup]:
    """The work that is left, grouped by training.

    A shard has the trainings its trainings start from as well, unless they have failed where they belong.
    """
    groups: list[RunJobGroup] = []
    trainings = shard.of(plan)
    mine = {training.folder for training in trainings}
    untrained = {training.folder for training in plan.untrained}
    bases = {
        base.folder for training in trainings if training.folder in untrained for base in training.chain[1:]
    } & untrained - mine
    by_training: defaultdict[Path, list[DialEvaluation]] = defaultdict(list)
    for sweep in plan.sweeps:
        if sweep.training.folder in mine and sweep.points_left():
            by_training[sweep.training.folder].append(sweep)
    for training in plan.trainings:
        if training.folder in bases and training.record.state != "failed":
            groups.append(JobGroup(_training(training, plan.config, estimator)))
        if training.folder not in mine:
            continue
        together: defaultdict[MethodSpec, list[DialEvaluation]] = defaultdict(list)
        for sweep in by_training[training.folder]:
            together[sweep.spec].append(sweep)
        evaluations = tuple(_evaluation(tuple(sweeps), estimator) for sweeps in together.values())
        job = _training(training, plan.config, estimator) if training.folder in untrained else None
        if job or evaluations:
            groups.append(JobGroup(job, evaluations))
    return groups


def _training(training: TrainingRun, config: RunConfig, estimator: Estimator) -> TrainingJob:
    seconds = estimator.training(training).seconds
    return TrainingJob(training, config, seconds, seconds / max(1, steps_left(training)))


def _evaluation(sweeps: tuple[DialEvaluation, ...], estimator: Estimator) -> EvaluationJob:
    unit_s: dict[UnitDone, float] = {}
    for sweep in sweeps:
        unit_s[DialCalibrated(str(sweep.folder))] = estimator.calibration(sweep).seconds
        unit_s[PointMeasured(str(sweep.folder))] = estimator.point(sweep).seconds
    return EvaluationJob(sweeps, sum(estimator.sweep(sweep).seconds for sweep in sweeps), unit_s)
