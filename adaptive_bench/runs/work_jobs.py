"""Defines the two kinds of jobs of a plan, trainings and evaluations, and finds those that are left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from adaptive_bench import processes, stopping
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, Superseded
from adaptive_bench.jobs.job import Failure, Job, JobEstimate, JobGroup, caught
from adaptive_bench.progress import DialCalibrated, PointMeasured, Reporter, TrainingStep, UnitDone
from adaptive_bench.runs.estimate import Estimator, steps_left
from adaptive_bench.runs.evaluation_work import EvaluationWorker, evaluate_sweeps
from adaptive_bench.runs.run_plan import WHOLE, Plan, Shard
from adaptive_bench.runs.training_work import carry_out_training, train_as_worker
from adaptive_bench.runs.work_units import DialEvaluation, TrainingRun
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.lock import exclusive
from adaptive_bench.store.records import Record


@dataclass(frozen=True)
class TrainingJob(Job):
    """A job that carries out one training."""

    training: TrainingRun
    config: RunConfig

    @classmethod
    def of(cls, training: TrainingRun, config: RunConfig, estimator: Estimator) -> TrainingJob:
        """The job of a training, with an estimate of what is left of it."""
        seconds, record = estimator.training(training).seconds, str(training.folder)
        unit_s = {TrainingStep(record): seconds / max(1, steps_left(training))}
        after = None if training.base is None else str(training.base.folder)
        methods = frozenset(one.spec.name for one in training.chain)
        estimate = JobEstimate(record, seconds, unit_s, after)
        return cls(str(training), estimate, training.spec.name, methods, config.tasks, training, config)

    @property
    def unfinished(self) -> tuple[str, ...]:
        return (self.label,)

    @property
    def is_ready(self) -> bool:
        return self.training.base is None or self.training.base.finished

    def do(self, reporter: Reporter) -> list[Failure]:
        failures: list[Failure] = []
        with caught(failures, self.label, self.method, self.tasks, partial(_log, self.training.record)):
            carry_out_training(self.training, self.config, reporter)
        return failures

    def mark_failed(self, error: AdaptiveBenchError, reporter: Reporter) -> Path | None:
        return _mark_failed(self.training.record, self.training.content, self.label, error, reporter)


@dataclass(frozen=True)
class EvaluationJob(Job):
    """A job that measures the unfinished sweeps of one method spec on one training."""

    sweeps: tuple[DialEvaluation, ...]

    @classmethod
    def of(cls, sweeps: tuple[DialEvaluation, ...], estimator: Estimator) -> EvaluationJob:
        """The job of some sweeps, with an estimate of what is left of them."""
        first = sweeps[0]
        unit_s: dict[UnitDone, float] = {}
        for sweep in sweeps:
            unit_s[DialCalibrated(str(sweep.folder))] = estimator.calibration(sweep).seconds
            unit_s[PointMeasured(str(sweep.folder))] = estimator.point(sweep).seconds
        seconds = sum(estimator.sweep(sweep).seconds for sweep in sweeps)
        estimate = JobEstimate(str(first.folder), seconds, unit_s, str(first.training.folder))
        methods = frozenset({first.spec.name, *(one.spec.name for one in first.training.chain)})
        label, tasks = f"evaluate {first.spec}, seed {first.training.seed}", tuple(sweep.task for sweep in sweeps)
        return cls(label, estimate, first.spec.name, methods, tasks, sweeps)

    @property
    def training(self) -> TrainingRun:
        """The training whose model is evaluated."""
        return self.sweeps[0].training

    @property
    def unfinished(self) -> tuple[str, ...]:
        return tuple(str(sweep) for sweep in self.sweeps if not sweep.is_complete)

    @property
    def is_ready(self) -> bool:
        return self.training.finished

    def do(self, reporter: Reporter) -> list[Failure]:
        """See `Job`: one sweep that fails does not stop the others."""
        failures: list[Failure] = []

        def attempting(sweep: DialEvaluation) -> AbstractContextManager[None]:
            return caught(failures, str(sweep), self.method, [sweep.task], partial(_log, sweep.record))

        evaluate_sweeps(self.sweeps, reporter, attempting)
        return failures

    def mark_failed(self, error: AdaptiveBenchError, reporter: Reporter) -> Path | None:
        sweep = next((sweep for sweep in self.sweeps if sweep.finished() is None), self.sweeps[-1])
        return _mark_failed(sweep.record, sweep.content, self.label, error, reporter)


RunJob = TrainingJob | EvaluationJob
RunJobGroup = JobGroup[RunJob]  # a training and the evaluations that depend on it


def _log(record: Record) -> Path | None:
    """The log of a failed record, if there is one."""
    log = record.folder / "log.txt"
    return log if record.state == "failed" and log.is_file() else None


def _mark_failed(
    record: Record,
    content: Mapping[str, Any],
    label: str,
    error: AdaptiveBenchError,
    reporter: Reporter,
) -> Path | None:
    try:
        with exclusive(record.folder, label, reporter):
            record.begin(content)
            record.fail(error)
    except (EnvironmentProblem, Superseded) as problem:  # reported only, so that other work goes on
        reporter.line(f"{label}: {problem}")
    log = record.folder / "log.txt"
    return log if log.is_file() else None


def groups_left(plan: Plan, estimator: Estimator, shard: Shard = WHOLE) -> list[RunJobGroup]:
    """The work that is left, grouped by training.

    A shard also includes the trainings that its own start from, unless they have failed in their own shard.
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
            groups.append(JobGroup(TrainingJob.of(training, plan.config, estimator)))
        if training.folder not in mine:
            continue
        together: defaultdict[MethodSpec, list[DialEvaluation]] = defaultdict(list)
        for sweep in by_training[training.folder]:
            together[sweep.spec].append(sweep)
        evaluations = tuple(EvaluationJob.of(tuple(sweeps), estimator) for sweeps in together.values())
        job = TrainingJob.of(training, plan.config, estimator) if training.folder in untrained else None
        if job or evaluations:
            groups.append(JobGroup(job, evaluations))
    return groups


def work_as_worker() -> None:
    """Take part in the jobs that the main process broadcasts, until it shuts down."""
    with stopping.listening():  # the main process decides when to stop
        processes.world().worker_loop({"train": train_as_worker, "evaluate": EvaluationWorker()})
