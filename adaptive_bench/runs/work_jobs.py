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
    """A job that carries out one training.

    Attributes:
        seconds, step_s: Expected time of the whole training, and of one step.
    """

    training: TrainingRun
    config: RunConfig
    seconds: float
    step_s: float

    def __str__(self) -> str:
        return str(self.training)

    @property
    def folder(self) -> Path:
        return self.training.folder

    @property
    def estimate(self) -> JobEstimate:
        after = None if self.training.base is None else str(self.training.base.folder)
        return JobEstimate(
            str(self.folder), self.seconds, "train", {TrainingStep(str(self.folder)): self.step_s}, after
        )

    @property
    def method(self) -> str:
        return self.training.spec.name

    @property
    def methods(self) -> frozenset[str]:
        return frozenset(one.spec.name for one in self.training.chain)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.config.tasks)

    @property
    def unfinished(self) -> tuple[str, ...]:
        return (str(self),)

    @property
    def is_ready(self) -> bool:
        return self.training.base is None or self.training.base.finished

    def do(self, reporter: Reporter) -> list[Failure]:
        failures: list[Failure] = []
        with caught(failures, str(self), self.method, self.tasks, partial(_log, self.training.record)):
            carry_out_training(self.training, self.config, reporter)
        return failures

    def mark_failed(self, error: AdaptiveBenchError, reporter: Reporter) -> Path | None:
        return _mark_failed(self.training.record, self.training.content, str(self), error, reporter)


@dataclass(frozen=True)
class EvaluationJob(Job):
    """A job that measures the unfinished sweeps of one method spec on one training.

    Attributes:
        seconds: Expected time of all sweeps.
        unit_s: See `JobEstimate`.
    """

    sweeps: tuple[DialEvaluation, ...]
    seconds: float
    unit_s: Mapping[UnitDone, float]

    def __str__(self) -> str:
        return f"evaluate {self.sweeps[0].spec}, seed {self.sweeps[0].training.seed}"

    @property
    def training(self) -> TrainingRun:
        """The training whose model is evaluated."""
        return self.sweeps[0].training

    @property
    def folder(self) -> Path:
        """See `Job`: the folder of the first sweep."""
        return self.sweeps[0].folder

    @property
    def estimate(self) -> JobEstimate:
        return JobEstimate(str(self.folder), self.seconds, "evaluate", self.unit_s, str(self.training.folder))

    @property
    def method(self) -> str:
        return self.sweeps[0].spec.name

    @property
    def methods(self) -> frozenset[str]:
        return frozenset({self.method, *(one.spec.name for one in self.training.chain)})

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(sweep.task for sweep in self.sweeps)

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
        return _mark_failed(sweep.record, sweep.content, str(self), error, reporter)


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


def work_as_worker() -> None:
    """Take part in the jobs that the main process broadcasts, until it shuts down."""
    with stopping.listening():  # the main process decides when to stop
        processes.world().worker_loop({"train": train_as_worker, "evaluate": EvaluationWorker()})
