"""Defines what a job is to the code that runs it, how a job fails, and which plugins' code it runs."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from adaptive_bench import processes, registry, stopping
from adaptive_bench.errors import AdaptiveBenchError, UsageError, explained, message_of
from adaptive_bench.progress import JobFinished, Reporter, UnitDone

NOT_FINISHED = "Not finished"  # kind of a failure that is no error: nobody has tried, or somebody is still at it


def needs_own_process(method: str) -> bool:
    """Whether a method's work needs processes of its own: the method comes from a plugin and can be loaded there."""
    of_plugin = method in registry.names("methods") and registry.is_foreign("methods", method)
    # Processes that share one job (`torchrun`) all load the same plugins, and start no others.
    return of_plugin and registry.has_source("methods", method) and processes.world().is_single


def named_plugins(methods: Iterable[str], tasks: Iterable[str] = ()) -> str | None:
    """Return in words which of some methods and tasks come from plugins, for an error message; `None` if none does."""
    groups: list[tuple[registry.Group, Iterable[str]]] = [("methods", methods), ("tasks", tasks)]
    found = [
        f"the {registry.one_of(group)} {name!r} of {registry.origin(group, name)}"
        for group, names in groups
        # A task may be named with an argument after a colon.
        for name in sorted({one.partition(":")[0] for one in names} & set(registry.names(group)))
        if registry.is_foreign(group, name)
    ]
    return " or ".join(found) or None


@dataclass(frozen=True)
class Failure:
    """Work that could not be done, and why."""

    work: str  # its label
    reason: str  # what went wrong and what to do
    kind: str = UsageError.kind  # of error, which says whose fault it is (see `adaptive_bench.errors`)
    log: Path | None = None  # the file that has the traceback, if the work got that far
    trace: str = ""  # the traceback itself

    def __str__(self) -> str:
        return f"{self.work}: {self.cause}"

    @property
    def was_tried(self) -> bool:
        """Whether the work was begun and failed; otherwise it is still to be done."""
        return self.kind != NOT_FINISHED

    @property
    def cause(self) -> str:
        """The reason with its kind and its log."""
        return f"{self.kind}: {self.reason}" + (f" Log: {self.log}" if self.log else "")


@contextmanager
def caught(
    failures: list[Failure],
    label: str,
    method: str,
    tasks: Iterable[str] = (),
    log: Callable[[], Path | None] = lambda: None,
) -> Iterator[None]:
    """Note an error in the block as a failure of some work, which runs the code of the method and the tasks.

    Args:
        log: Gives the file that has the traceback, if it was written there.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - one broken method must not cost the results of the others
        found = explained(error, named_plugins([method], tasks))
        trace = "".join(traceback.format_exception(error))
        # `log` is asked only now: the record is marked as failed while the error leaves the block.
        failures.append(Failure(label, message_of(found), found.kind, log(), trace))


@dataclass(frozen=True)
class Job(ABC):
    """A job, which can be pickled and continues from what it has on disk."""

    label: str  # the job in words
    folder: Path  # folder of its record, which identifies the job in events
    seconds: float  # seconds that it is expected to take
    unit_s: Mapping[UnitDone, float]  # by event that reports a finished unit, the seconds expected for that unit
    method: str  # name of the method that the job is about, which gets the blame for a failure
    methods: frozenset[str]  # names of all methods whose code it runs
    tasks: tuple[str, ...]  # names of the tasks whose code it runs

    def __str__(self) -> str:
        return self.label

    @property
    @abstractmethod
    def unfinished(self) -> tuple[str, ...]:
        """Labels of its parts that are not done."""

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """Whether the work that the job builds on is done."""

    @abstractmethod
    def do(self, reporter: Reporter) -> list[Failure]:
        """Do what is left of the job, and return what failed. If the job is not ready, nothing can be done."""

    @abstractmethod
    def mark_failed(self, error: AdaptiveBenchError, reporter: Reporter) -> Path | None:
        """Mark the record that the job was working on as failed, from another process; return its log, if any."""


def plugins_of(job: Job) -> set[str]:
    """Return the methods of a job that need processes of their own, see `needs_own_process`."""
    return set(filter(needs_own_process, job.methods))


def run_job(job: Job, reporter: Reporter) -> list[Failure]:
    """Do a job, and return what could not be done (tracebacks are in the logs of the records)."""
    stopping.check()
    failures: list[Failure] = []
    try:
        with caught(failures, str(job), job.method, job.tasks):
            failures += job.do(reporter)
    finally:
        reporter.emit(JobFinished(str(job.folder)))  # also if it failed or was stopped, so that the bar moves on
    return failures
