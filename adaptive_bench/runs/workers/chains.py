"""The pieces of work that a plan comes down to, and doing one of them."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from adaptive_bench import guard, processes, registry, stopping
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, PluginFault, UsageError, message_of
from adaptive_bench.faults import explained, is_exit_of_plugin
from adaptive_bench.progress import Meter, Reporter, SilentReporter
from adaptive_bench.runs.cost.estimate import steps_left
from adaptive_bench.runs.cost.forecast import Kind, Piece
from adaptive_bench.runs.planning.cells import Cell, Sweep
from adaptive_bench.runs.records.folders import Record
from adaptive_bench.runs.workers.overall import Ration, RationedReporter, SweepsReporter, SweepTime
from adaptive_bench.runs.workers.work import evaluate_sweeps, train_cell
from adaptive_bench.spec import MethodSpec
from adaptive_bench.training.memory import ran_out_of_memory


@dataclass(frozen=True)
class Failure:
    """Work that could not be done, and why.

    Attributes:
        work: What it was.
        reason: What went wrong and what to do.
        kind: Whose fault it is: the `kind` of an error (see `adaptive_bench.errors`).
        log: The file that has the traceback, if the work got that far.
        trace: The traceback itself.
    """

    work: str
    reason: str
    kind: str = UsageError.kind
    log: Path | None = None
    trace: str = ""

    def __str__(self) -> str:
        return f"{self.work}: {self.cause}"

    @property
    def cause(self) -> str:
        """The reason with its kind and its log."""
        return f"{self.kind}: {self.reason}" + (f" Log: {self.log}" if self.log else "")


@dataclass(frozen=True)
class Training:
    """A cell to train, which is expected to take some seconds."""

    cell: Cell
    config: RunConfig
    seconds: float

    def __str__(self) -> str:
        return str(self.cell)

    @property
    def key(self) -> str:
        """What progress calls it."""
        return str(self.cell.folder)

    @property
    def piece(self) -> Piece:
        """What a forecast knows of it."""
        base = self.cell.base
        return Piece(self.key, self.seconds, "train", None if base is None else str(base.folder))

    @property
    def spec(self) -> MethodSpec:
        """The method that is trained."""
        return self.cell.spec

    @property
    def unfinished(self) -> tuple[str, ...]:
        """What of it is not done, by name."""
        return (str(self),)

    @property
    def methods(self) -> frozenset[str]:
        """Names of the methods whose code it runs."""
        return frozenset({*_trained(self.cell)})

    @property
    def record(self) -> Record:
        """Where its log is."""
        return self.cell.record

    def do(self, reporter: Reporter, overall: Meter) -> list[Failure]:
        """Train; gives back the failure, if it is one."""
        failures: list[Failure] = []
        ration = Ration(overall, self.seconds, self.key)
        done = self.cell.steps - steps_left(self.cell)
        with _heard(overall, self.key), _caught(failures, str(self), self.spec, self.cell.record):
            train_cell(self.cell, self.config, RationedReporter(reporter, ration, self.seconds, done=done))
            ration.finish()
        return failures


@dataclass(frozen=True)
class Measuring:
    """The unfinished sweeps of one method spec on one cell.

    Attributes:
        shares: What each of them is expected to take.
    """

    sweeps: tuple[Sweep, ...]
    shares: tuple[SweepTime, ...]

    def __str__(self) -> str:
        return f"evaluate {self.spec}, seed {self.sweeps[0].cell.seed}"

    @property
    def key(self) -> str:
        """What progress calls it."""
        return str(self.sweeps[0].folder)

    @property
    def piece(self) -> Piece:
        """What a forecast knows of it."""
        kind: Kind = "calibrate" if any(share.calibration_s for share in self.shares) else "measure"
        seconds = sum(share.seconds for share in self.shares)
        return Piece(self.key, seconds, kind, str(self.sweeps[0].cell.folder))

    @property
    def spec(self) -> MethodSpec:
        """The method that is measured."""
        return self.sweeps[0].spec

    @property
    def unfinished(self) -> tuple[str, ...]:
        """What of it is not done, by name."""
        return tuple(str(sweep) for sweep in self.sweeps if not sweep.is_complete)

    @property
    def methods(self) -> frozenset[str]:
        """Names of the methods whose code it runs."""
        return frozenset({self.spec.name, *_trained(self.sweeps[0].cell)})

    @property
    def record(self) -> Record:
        """Where the log of its first sweep is."""
        return self.sweeps[0].record

    def do(self, reporter: Reporter, overall: Meter) -> list[Failure]:
        """Measure; gives back what failed, sweep by sweep: one that fails does not stop the others."""
        failures: list[Failure] = []
        counted = SweepsReporter(reporter, overall, self.shares, self.key)

        def attempting(sweep: Sweep) -> AbstractContextManager[None]:
            counted.begin(self.sweeps.index(sweep))
            return _caught(failures, str(sweep), sweep.spec, sweep.record)

        with _heard(overall, self.key):
            evaluate_sweeps(self.sweeps, counted, SilentReporter().task("", 0), attempting)
            counted.finish()
        return failures


@contextmanager
def _heard(overall: Meter, key: str) -> Iterator[None]:
    """Tell the bar of the run when a work begins and when it is over, done or failed."""
    overall.advance(0, work=key)
    try:
        yield
    finally:
        overall.advance(0, work=key, over=1)


Work = Training | Measuring


def _trained(cell: Cell) -> list[str]:
    return [cell.spec.name, *([] if cell.base is None else _trained(cell.base))]


def stands_apart(work: Work) -> bool:
    """Whether some work is done in a process of its own: it runs code of a plugin that can be loaded there."""
    return any(map(has_own_process, work.methods))


def has_own_process(method: str) -> bool:
    """Whether what a method does is done in processes of its own: it is a plugin's, and can be loaded there."""
    return (
        registry.is_foreign("methods", method)
        and registry.has_source("methods", method)
        and processes.world().is_single  # several that share a cell load the same
    )


@dataclass(frozen=True)
class Chain:
    """What hangs on one cell: its training, unless that is done, and then its measurings in any order."""

    training: Training | None
    measurings: tuple[Measuring, ...]

    @property
    def cell(self) -> Cell:
        """The cell."""
        return self.training.cell if self.training else self.measurings[0].sweeps[0].cell

    @property
    def works(self) -> tuple[Work, ...]:
        """Everything, in an order that works."""
        return (*([self.training] if self.training else []), *self.measurings)

    @property
    def waits_for(self) -> Cell | None:
        """The unfinished training whose backbone this chain's training starts from."""
        base = None if self.training is None else self.training.cell.base
        return None if base is None or base.finished else base


def attempt(work: Work, reporter: Reporter, overall: Meter, plugins: Iterable[Path] = ()) -> list[Failure]:
    """Do some work; gives back what of it could not be done (tracebacks are in the logs of the records).

    Args:
        plugins: Files to load first.
    """
    stopping.check()
    failures: list[Failure] = []
    with _caught(failures, str(work), work.spec, work.record):
        registry.load_plugins(plugins)
        with guard.watching(_plugins_at_work(work)):
            failures += work.do(reporter, overall)
    return failures


@contextmanager
def _caught(failures: list[Failure], name: str, spec: MethodSpec, record: Record) -> Iterator[None]:
    """Note an error in the block as the failure of some work."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - one broken method must not cost the results of the others
        failures.append(_failure(error, name, spec, record))
    except SystemExit as error:
        if not is_exit_of_plugin(error):
            raise
        failures.append(_failure(error, name, spec, record))


def _failure(error: BaseException, name: str, spec: MethodSpec, record: Record) -> Failure:
    found = explained(error, named_plugins([spec.name]))
    if ran_out_of_memory(error) and not isinstance(found, PluginFault | EnvironmentProblem):
        found = EnvironmentProblem("memory ran out. Choose a smaller --model or a --device with more memory.")
    log = record.folder / "log.txt"
    shown = log if record.state == "failed" and log.is_file() else None
    return Failure(name, message_of(found), found.kind, shown, "".join(traceback.format_exception(error)))


def _plugins_at_work(work: Work) -> str | None:
    """The plugins whose code some work runs, as an error names them; `None` without any."""
    tasks = work.config.tasks if isinstance(work, Training) else [sweep.task for sweep in work.sweeps]
    return named_plugins(work.methods, tasks)


def named_plugins(methods: Iterable[str], tasks: Iterable[str] = ()) -> str | None:
    """Those of some methods and tasks that come from plugins, as an error names them; `None` without any."""
    groups: list[tuple[registry.Group, Iterable[str]]] = [("methods", methods), ("tasks", tasks)]
    found = [
        f"the {group.removesuffix('s')} {name!r} of {registry.origin(group, name)}"
        for group, names in groups
        for name in sorted(set(names) & set(registry.names(group)))
        if registry.is_foreign(group, name)
    ]
    return " or ".join(found) or None
