"""The two kinds of jobs that a plan comes down to."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, Superseded
from adaptive_bench.jobs.job import Failure, Job, JobEstimate, JobGroup, caught
from adaptive_bench.progress import Reporter, TrainingStep, UnitDone
from adaptive_bench.runs.planning.works import DialEvaluation, TrainingRun
from adaptive_bench.runs.work.evaluation import evaluate_sweeps
from adaptive_bench.runs.work.training import carry_out_training
from adaptive_bench.store.lock import exclusive
from adaptive_bench.store.records import Record


@dataclass(frozen=True)
class TrainingJob(Job):
    """A training to train.

    Attributes:
        seconds, step_s: What it is expected to take: in all, and for one step.
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

    @property
    def is_begun(self) -> bool:
        """Whether something of it is on disk."""
        return self.training.record.state != "planned"

    def do(self, reporter: Reporter) -> list[Failure]:
        failures: list[Failure] = []
        with caught(failures, str(self), self.method, self.tasks, partial(_log, self.training.record)):
            carry_out_training(self.training, self.config, reporter)
        return failures

    def mark_failed(self, error: AdaptiveBenchError, reporter: Reporter) -> Path | None:
        return _mark_failed(self.training.record, self.training.content, str(self), error, reporter)


@dataclass(frozen=True)
class EvaluationJob(Job):
    """The unfinished sweeps of one method spec on one training.

    Attributes:
        seconds: What all of them are expected to take.
        unit_s: See `JobEstimate`.
    """

    sweeps: tuple[DialEvaluation, ...]
    seconds: float
    unit_s: Mapping[UnitDone, float]

    def __str__(self) -> str:
        return f"evaluate {self.sweeps[0].spec}, seed {self.sweeps[0].training.seed}"

    @property
    def training(self) -> TrainingRun:
        """The training that it evaluates."""
        return self.sweeps[0].training

    @property
    def folder(self) -> Path:
        """See `Job`: of the first sweep."""
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

    @property
    def is_begun(self) -> bool:
        """Whether something of it is on disk."""
        return any(sweep.record.state != "planned" for sweep in self.sweeps)

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
RunJobGroup = JobGroup[RunJob]  # what hangs on one training


def _log(record: Record) -> Path | None:
    """The log of a record, if it says why it failed."""
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
    except (EnvironmentProblem, Superseded) as problem:  # no reason to give up the work of others
        reporter.line(f"{label}: {problem}")
    log = record.folder / "log.txt"
    return log if log.is_file() else None
