"""Carries out the work of a plan: in this process, or in several when the backbone is small and there are cores to use.

Work that fails is reported and does not stop the rest; only what builds on it is left out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

import torch

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import AdaptiveBenchError
from adaptive_bench.progress import Meter, Reporter
from adaptive_bench.runs.backbones import find_backbone, find_device
from adaptive_bench.runs.estimate import Estimator
from adaptive_bench.runs.plan import Cell, Plan, Sweep
from adaptive_bench.runs.work import evaluate_sweeps, train_cell
from adaptive_bench.spec import MethodSpec
from adaptive_bench.training.gradient import ran_out_of_memory

# A larger backbone keeps all cores busy by itself.
_SMALL_BACKBONE_BYTES = 100_000_000
_MOST_PROCESSES = 8


@dataclass(frozen=True)
class Failure:
    """Work that could not be done, and why."""

    work: str
    reason: str

    def __str__(self) -> str:
        return f"{self.work}: {self.reason}"


@dataclass(frozen=True)
class Training:
    """A cell to train; counts as `units` points of a sweep."""

    cell: Cell
    config: RunConfig
    units: int

    def __str__(self) -> str:
        return str(self.cell)

    def do(self, reporter: Reporter, overall: Meter) -> None:
        """Train."""
        train_cell(self.cell, self.config, reporter)
        overall.advance(self.units)


@dataclass(frozen=True)
class Measuring:
    """The unfinished sweeps of one method spec on one cell; `units` points are missing."""

    sweeps: tuple[Sweep, ...]
    units: int

    def __str__(self) -> str:
        return f"evaluate {self.sweeps[0].spec}, seed {self.sweeps[0].cell.seed}"

    def do(self, reporter: Reporter, overall: Meter) -> None:
        """Measure."""
        evaluate_sweeps(self.sweeps, reporter, overall)


Work = Training | Measuring


@dataclass(frozen=True)
class Chain:
    """What hangs on one cell: its training, unless that is done, and then its measurings in any order."""

    training: Training | None
    measurings: tuple[Measuring, ...]

    @property
    def works(self) -> tuple[Work, ...]:
        """Everything, in an order that works."""
        return (*([self.training] if self.training else []), *self.measurings)

    @property
    def waits_for(self) -> Cell | None:
        """The unfinished training whose backbone this chain's training starts from."""
        base = None if self.training is None else self.training.cell.base
        return None if base is None or base.finished else base


def carry_out(plan: Plan, reporter: Reporter, jobs: int | None = None) -> list[Failure]:
    """Do everything of a plan that is not on disk yet.

    Args:
        jobs: Processes to use; `None` decides by the size of the backbone and the number of cores.
    """
    chains = chains_left(plan)
    works = [work for chain in chains for work in chain.works]
    if not works:
        return []
    jobs = min(jobs or _useful_processes(plan.config), len(works))
    with reporter.task("run", sum(work.units for work in works)) as overall:
        if jobs == 1:
            return _one_after_the_other(chains, reporter, overall)
        from adaptive_bench.runs.pool import in_parallel

        return in_parallel(chains, reporter, overall, jobs)


def chains_left(plan: Plan) -> list[Chain]:
    """The work that is left, grouped by cell."""
    estimator = Estimator(plan.config.out)
    point_s = median(estimator.point(sweep).seconds for sweep in plan.sweeps)
    chains = []
    for cell in plan.cells:
        by_spec: defaultdict[MethodSpec, list[Sweep]] = defaultdict(list)
        for sweep in plan.sweeps:
            if sweep.cell.folder == cell.folder and sweep.points_left():
                by_spec[sweep.spec].append(sweep)
        measurings = tuple(
            Measuring(tuple(sweeps), sum(sweep.points_left() for sweep in sweeps)) for sweeps in by_spec.values()
        )
        training = None
        if not cell.finished:
            training = Training(cell, plan.config, max(1, round(estimator.training(cell).seconds / point_s)))
        if training or measurings:
            chains.append(Chain(training, measurings))
    return chains


def attempt(work: Work, reporter: Reporter, overall: Meter) -> Failure | None:
    """Do some work; an error becomes a failure (its traceback is in the log of the work's record)."""
    try:
        work.do(reporter, overall)
    except AdaptiveBenchError as error:
        return Failure(str(work), str(error))
    except Exception as error:  # noqa: BLE001 - one broken method must not cost the results of the others
        if ran_out_of_memory(error):
            return Failure(str(work), "memory ran out. Choose a smaller --model or a --device with more memory.")
        return Failure(str(work), f"unexpected {type(error).__name__}: {error}")
    return None


def _one_after_the_other(chains: list[Chain], reporter: Reporter, overall: Meter) -> list[Failure]:
    failures = []
    for chain in chains:
        for work in chain.works:
            failure = attempt(work, reporter, overall)
            if failure is not None:
                failures.append(failure)
                reporter.line(f"Failed: {failure}")
            if failure is not None and work is chain.training:
                break
    return failures


def _useful_processes(config: RunConfig) -> int:
    """One core for each small backbone; a large one, or a GPU, is not shared."""
    size_bytes = find_backbone(config.model).weight_bytes
    if find_device(config.device).type != "cpu" or size_bytes is None or size_bytes > _SMALL_BACKBONE_BYTES:
        return 1
    return min(torch.get_num_threads(), _MOST_PROCESSES)
