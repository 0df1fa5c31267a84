"""The pieces of work that a plan comes down to, and doing one of them."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import AdaptiveBenchError
from adaptive_bench.progress import Meter, Reporter
from adaptive_bench.runs.cells import Cell, Sweep
from adaptive_bench.runs.work import evaluate_sweeps, train_cell
from adaptive_bench.training.memory import ran_out_of_memory


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
