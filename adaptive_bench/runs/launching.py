"""Makes jobs of the work that a plan has left, and has them done: on this machine, through a launcher, or by others."""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from adaptive_bench import processes, registry, stopping
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import (
    AdaptiveBenchError,
    EnvironmentProblem,
    Interrupted,
    Superseded,
    ToBeContinued,
    UsageError,
)
from adaptive_bench.jobs.job import NOT_FINISHED, Failure, Job, caught, needs_own_process
from adaptive_bench.jobs.launchers import PendingJob
from adaptive_bench.jobs.pool import Limits, run_jobs
from adaptive_bench.progress import DialCalibrated, PointMeasured, Reporter, TrainingStep, UnitDone, duration
from adaptive_bench.runs.backbone_source import find_backbone, find_device
from adaptive_bench.runs.evaluation_work import EvaluationWorker, evaluate_sweeps
from adaptive_bench.runs.forecast import Estimator, steps_left
from adaptive_bench.runs.run_plan import Plan
from adaptive_bench.runs.training_work import carry_out_training, train_as_worker
from adaptive_bench.runs.work_units import DialEvaluation, TrainingRun
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import lock
from adaptive_bench.store.records import Record
from adaptive_bench.store.runs import retry_command, run_command

_FORM = re.compile(r"([1-9]\d*)/([1-9]\d*)")
# A larger backbone keeps all cores busy by itself.
_SMALL_BACKBONE_BYTES = 100_000_000
_MOST_PROCESSES = 8
_WORTH_S = 10.0  # shorter work is done in this process: another one takes about 5 s to load the libraries
_LOOK_S = 10.0  # between two looks at the records
_STEP_S = 0.5  # between two checks whether this process was asked to stop


@dataclass(frozen=True)
class Shard:
    """A part of a plan: some of its cells, each a training with all its evaluations.

    The plan's order decides which, so that several commands with the same config divide it in the same way without
    communicating. A cell may start from a training of another part: the command that needs it first trains it, and the
    others wait for the result.
    """

    number: int = 1
    parts: int = 1  # `2/8` has every eighth cell, from the second on
    cells: tuple[str, ...] = ()  # names of records; if there are any, the part consists of these cells instead

    @classmethod
    def parse(cls, shard: str | None, cells: str | None) -> Shard:
        """Read `2/8`, or names of records separated by commas.

        Raises:
            UsageError: Both are given, or one has the wrong form.
        """
        if shard is not None and cells is not None:
            raise UsageError("A command does a shard or named cells, got --shard and --cell. Leave one of them out.")
        if cells is not None:
            return cls(cells=tuple(name.strip() for name in cells.split(",")))
        if shard is None:
            return cls()
        found = _FORM.fullmatch(shard.strip())
        if found is None or int(found[1]) > int(found[2]):
            raise UsageError(f"A shard is a part of several, such as --shard 2/8 (1/8 to 8/8), got {shard!r}.")
        return cls(int(found[1]), int(found[2]))

    @property
    def is_whole(self) -> bool:
        """Whether this part is the whole plan."""
        return self.parts == 1 and not self.cells

    def of(self, plan: Plan) -> tuple[TrainingRun, ...]:
        """The cells of this part, in the order of the plan."""
        if not self.cells:
            return plan.trainings[self.number - 1 :: self.parts]
        known = {cell.folder.name: cell for cell in plan.trainings}
        for name in self.cells:
            if name not in known:
                raise UsageError(
                    f"A cell is named like its record, but the plan has no cell {name!r}: the name is wrong, or code, "
                    f"data or recipe have changed since it was planned. {registry.did_you_mean(name, known)}"
                )
        return tuple(cell for name, cell in known.items() if name in self.cells)


WHOLE = Shard()


@dataclass(frozen=True)
class RunJob(Job):
    """A job that carries out a training or, if it has sweeps, measures those of one method spec on the training."""

    training: TrainingRun
    config: RunConfig
    sweeps: tuple[DialEvaluation, ...] = ()

    @classmethod
    def of_training(cls, training: TrainingRun, config: RunConfig, estimator: Estimator) -> RunJob:
        """The job of a training, with an estimate of what is left of it."""
        seconds, folder = estimator.training(training), training.folder
        unit_s: dict[UnitDone, float] = {TrainingStep(str(folder)): seconds / max(1, steps_left(training))}
        method, methods = training.spec.name, _methods_of(training)
        return cls(str(training), folder, seconds, unit_s, method, methods, config.tasks, training, config)

    @classmethod
    def of_sweeps(cls, sweeps: tuple[DialEvaluation, ...], estimator: Estimator) -> RunJob:
        """The job of some sweeps of one spec on one training, with an estimate of what is left of them."""
        first = sweeps[0]
        unit_s: dict[UnitDone, float] = {}
        for sweep in sweeps:
            unit_s[DialCalibrated(str(sweep.folder))] = estimator.calibration(sweep)
            unit_s[PointMeasured(str(sweep.folder))] = estimator.point(sweep)
        seconds = sum(estimator.sweep(sweep) for sweep in sweeps)
        method, methods = first.spec.name, _methods_of(first.training) | {first.spec.name}
        label, tasks = f"evaluate {first.spec}, seed {first.training.seed}", tuple(sweep.task for sweep in sweeps)
        about = label, first.folder, seconds, unit_s, method, methods, tasks
        return cls(*about, first.training, first.config, sweeps)

    @property
    def unfinished(self) -> tuple[str, ...]:
        return tuple(str(work) for work in self._left)

    @property
    def _left(self) -> list[TrainingRun | DialEvaluation]:
        return [work for work in (self.sweeps or (self.training,)) if not _is_done(work)]

    @property
    def is_ready(self) -> bool:
        needed = self.training if self.sweeps else self.training.base
        return needed is None or needed.finished

    def do(self, reporter: Reporter) -> list[Failure]:
        """See `Job`: one sweep that fails does not stop the others."""
        failures: list[Failure] = []

        def attempting(work: TrainingRun | DialEvaluation) -> AbstractContextManager[None]:
            tasks = [work.task] if isinstance(work, DialEvaluation) else self.tasks
            return caught(failures, str(work), self.method, tasks, partial(_log, work.record))

        if not self.sweeps:
            with attempting(self.training):
                carry_out_training(self.training, self.config, reporter)
        elif self.is_ready:  # else the training has failed, which is reported already
            evaluate_sweeps(self.sweeps, reporter, attempting)
        return failures

    def mark_failed(self, error: AdaptiveBenchError, reporter: Reporter) -> Path | None:
        """See `Job`: work is done in order, so it was at the first that is not done."""
        work = next(iter(self._left), (self.sweeps or (self.training,))[-1])
        try:
            with lock.exclusive(work.record.folder, self.label, reporter):
                work.record.begin(work.content)
                work.record.fail(error)
        except (EnvironmentProblem, Superseded) as problem:  # reported only, so that other work goes on
            reporter.line(f"{self.label}: {problem}")
        return _log(work.record)


def _is_done(work: TrainingRun | DialEvaluation) -> bool:
    return work.finished if isinstance(work, TrainingRun) else work.is_complete


def _methods_of(training: TrainingRun) -> frozenset[str]:
    """Names of the methods whose code a training runs or starts from."""
    return frozenset(one.spec.name for one in training.chain)


def _log(record: Record) -> Path | None:
    """The log of a failed record, if there is one."""
    log = record.folder / "log.txt"
    return log if record.state == "failed" and log.is_file() else None


def jobs_left(plan: Plan, estimator: Estimator, shard: Shard = WHOLE) -> list[RunJob]:
    """The work that is left: each training with its evaluations after it.

    A shard also includes the trainings that its own start from, unless they have failed in their own shard.
    """
    jobs: list[RunJob] = []
    untrained = {training.folder for training in plan.untrained}
    mine = {training.folder: training for training in shard.of(plan)}
    # What this shard's own trainings start from and another shard has.
    bases = {base.folder for folder in mine.keys() & untrained for base in mine[folder].chain[1:]} - mine.keys()
    left: defaultdict[Path, dict[MethodSpec, list[DialEvaluation]]] = defaultdict(dict)
    for sweep in plan.sweeps:
        if sweep.training.folder in mine and sweep.points_left():
            left[sweep.training.folder].setdefault(sweep.spec, []).append(sweep)
    for training in plan.trainings:
        folder = training.folder
        if folder in untrained and (folder in mine or (folder in bases and training.record.state != "failed")):
            jobs.append(RunJob.of_training(training, plan.config, estimator))
        jobs += [RunJob.of_sweeps(tuple(sweeps), estimator) for sweeps in left[folder].values()]
    return jobs


def work_as_worker() -> None:
    """Take part in the jobs that the main process broadcasts, until it shuts down."""
    with stopping.listening():  # the main process decides when to stop
        processes.world().worker_loop({"train": train_as_worker, "evaluate": EvaluationWorker()})


def limits_of(config: RunConfig) -> Limits:
    """The time limits of each job of a run."""
    if config.cell_timeout is not None and not processes.world().is_single:
        raise UsageError(
            "--cell-timeout ends the process of a job, but torchrun's processes do all of them together. Leave it out "
            "and let the scheduler's own time limit end the command."
        )
    # From minutes; `stall_warning` 0 means never.
    return Limits(config.cell_timeout and 60 * config.cell_timeout, 60 * config.stall_warning or None)


def useful_processes(config: RunConfig, seconds: float = math.inf) -> int:
    """How many processes are worth using: one for each core for a small backbone, one for a large backbone or a GPU, or
    for work that takes only some `seconds` in one process.
    """
    if seconds < _WORTH_S and not any(needs_own_process(MethodSpec.parse(text).name) for text in config.methods):
        return 1
    size_bytes = find_backbone(config.model).weight_bytes
    if find_device(config.device).type != "cpu" or size_bytes is None or size_bytes > _SMALL_BACKBONE_BYTES:
        return 1
    return min(torch.get_num_threads(), _MOST_PROCESSES)


def unfinished_work(plan: Plan, run: Path) -> list[Failure]:
    """The work of a plan that is not done, and why, as far as the records know; `run` is the folder of its run."""
    sweeps = [one for one in plan.sweeps if one.training.finished and not one.is_complete]
    works: list[TrainingRun | DialEvaluation] = [*plan.untrained, *sweeps]
    return [_why(str(work), work.record, run) for work in works]


def _why(work: str, record: Record, run: Path) -> Failure:
    state = record.state
    if state == "failed":
        return Failure(work, record.reason, "Failed before", record.folder / "log.txt")
    about = {"planned": "it was not begun", "running": f"{lock.owner(record.folder)} is running it"}
    reason = about.get(state, "its process has ended before it was done")
    return Failure(work, f"{reason}. `{retry_command(run)}` does it.", NOT_FINISHED)


def settle(plan: Plan) -> None:
    """Mark finished work as done if its process was killed before it could."""
    works: list[TrainingRun | DialEvaluation] = [*plan.trainings, *plan.sweeps]
    for work in works:
        if _is_done(work):
            work.record.mark_done()


def carry_out(
    plan: Plan,
    reporter: Reporter,
    workers: int | None = None,
    estimator: Estimator | None = None,
    shard: Shard = WHOLE,
) -> list[Failure]:
    """Do all work of a plan, or of a shard, that is not on disk yet, and return what was not done.

    Without a number of `workers`, `useful_processes` decides. Without an estimator, times come from records alone.
    """
    limits = limits_of(plan.config)
    settle(plan)
    jobs = jobs_left(plan, estimator or Estimator(plan.config.out), shard)
    if not jobs:
        return []
    seconds = sum(job.seconds for job in jobs)
    workers = min(workers or useful_processes(plan.config, seconds), len(jobs))
    failures = run_jobs(jobs, reporter, workers, limits)
    settle(plan)  # a worker may have been killed right before it marked its work as done
    return failures


def cells_left(plan: Plan, shard: Shard) -> list[PendingJob]:
    """The trainings of a shard with work left; each comes after the training that it starts from."""
    evaluated = {sweep.training.folder for sweep in plan.sweeps if sweep.points_left()}
    left = [one for one in shard.of(plan) if not one.finished or one.folder in evaluated]
    # By the unfinished trainings that must be done before; sorting keeps the plan's order among equal depths.
    jobs = [PendingJob(one.folder.name, sum(not base.finished for base in one.chain[1:])) for one in left]
    return sorted(jobs, key=lambda job: job.depth)


def wait_for_others(
    plan: Plan, run: Path, reporter: Reporter, quiet_s: float, now_s: Callable[[], float] = time.monotonic
) -> None:
    """Wait until all work of a plan is done, or until no process has worked on any of it for `quiet_s` seconds.

    After such a silence the remaining work counts as given up. Failed work is waited for as well, because whoever is in
    charge may try it again.
    """
    last_s, told = now_s(), False
    while missing := unfinished_work(plan, run):
        pending = [one.folder for one in plan.untrained] + [one.folder for one in plan.sweeps if not one.is_complete]
        if any(map(lock.is_held, pending)):
            last_s = now_s()
        elif now_s() - last_s >= quiet_s:
            reporter.line(f"No process has worked on what is left for {duration(quiet_s)}: {missing[0]}")
            return
        if not told:
            reporter.line(f"Waiting for {len(missing)} pieces of work of other processes, such as {missing[0].work}")
            told = True
        # In short steps, so that a request to stop is heard soon.
        end_s = now_s() + min(_LOOK_S, quiet_s)
        while now_s() < end_s:
            stopping.check()
            time.sleep(min(_STEP_S, quiet_s))


@contextmanager
def stoppable(folder: Path, config: RunConfig) -> Iterator[None]:
    """Tell a user or scheduler who stops the block how to continue.

    Raises:
        Interrupted: Ctrl-C was pressed; finished work is kept.
        ToBeContinued: A scheduler's signal arrived; finished work is kept.
    """
    try:
        with stopping.listening():
            yield
    except (KeyboardInterrupt, stopping.Stopped) as error:
        kind = Interrupted if isinstance(error, KeyboardInterrupt) else ToBeContinued
        raise kind(
            f"Stopped. What was finished is kept in {str(config.out)!r}. Re-run the command to continue, "
            f"or: {run_command(folder, registry.plugin_files())}"
        ) from None
