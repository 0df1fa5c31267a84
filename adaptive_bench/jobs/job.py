"""What a job is to whoever does it, how one fails, and which plugins it runs the code of."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from adaptive_bench import processes, registry, stopping
from adaptive_bench.errors import AdaptiveBenchError, UsageError, message_of
from adaptive_bench.faults import explained
from adaptive_bench.progress import JobFinished, JobStarted, Reporter, UnitDone


def needs_own_process(method: str) -> bool:
    """Whether what a method does is done in processes of its own: it is a plugin's, and can be loaded there."""
    of_plugin = method in registry.names("methods") and registry.is_foreign("methods", method)
    # Several that share a job load the same.
    return of_plugin and registry.has_source("methods", method) and processes.world().is_single


def named_plugins(methods: Iterable[str], tasks: Iterable[str] = ()) -> str | None:
    """Those of some methods and tasks that come from plugins, as an error names them; `None` without any."""
    groups: list[tuple[registry.Group, Iterable[str]]] = [("methods", methods), ("tasks", tasks)]
    found = [
        f"the {registry.one_of(group)} {name!r} of {registry.origin(group, name)}"
        for group, names in groups
        for name in sorted({one.partition(":")[0] for one in names} & set(registry.names(group)))
        if registry.is_foreign(group, name)
    ]
    return " or ".join(found) or None


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
    def was_tried(self) -> bool:
        """Whether somebody was at it and failed; else it waits for whoever does it."""
        return self.kind not in ("Not finished", "Not listed")

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
    """Note an error in the block as the failure of some work.

    Args:
        label: What the work is called.
        method: Whose code it runs.
        tasks: Likewise.
        log: Gives the file that has the traceback, if the error got there.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - one broken method must not cost the results of the others
        found = explained(error, named_plugins([method], tasks))
        trace = "".join(traceback.format_exception(error))
        failures.append(Failure(label, message_of(found), found.kind, log(), trace))


@dataclass(frozen=True)
class JobEstimate:
    """What a job is expected to take.

    Attributes:
        job: Identifies it in events: the folder of its record.
        seconds: In all.
        kind: Jobs of one kind are wrong by the same factor.
        unit_s: By event, the seconds that were expected for what it says is done.
        after: The job it comes after, if that is left to do.
    """

    job: str
    seconds: float
    kind: str
    unit_s: Mapping[UnitDone, float] = field(default_factory=dict)
    after: str | None = None


class Job(Protocol):
    """A job: its label is `str(job)`, it can be pickled, and it picks up what is on disk of it."""

    @property
    def folder(self) -> Path:
        """Of its record."""

    @property
    def estimate(self) -> JobEstimate:
        """What it is expected to take."""

    @property
    def method(self) -> str:
        """Name of the method that it is about: whose fault a failure is."""

    @property
    def methods(self) -> frozenset[str]:
        """Names of all methods whose code it runs."""

    @property
    def tasks(self) -> Collection[str]:
        """Names of the tasks whose code it runs."""

    @property
    def unfinished(self) -> tuple[str, ...]:
        """What of it is not done, by label."""

    @property
    def is_ready(self) -> bool:
        """Whether what it builds on is done."""

    def do(self, reporter: Reporter) -> list[Failure]:
        """Do what is left of it; gives back what failed."""

    def mark_failed(self, error: AdaptiveBenchError, reporter: Reporter) -> Path | None:
        """Note in the record it was working on, from outside, that it failed; gives back the log, if there is one."""


JobT = TypeVar("JobT", bound=Job)


@dataclass(frozen=True)
class JobGroup(Generic[JobT]):
    """A job that others build on, unless it is done, and those others in any order."""

    first: JobT | None
    others: tuple[JobT, ...] = ()

    @property
    def jobs(self) -> tuple[JobT, ...]:
        """All of them, in an order that works."""
        return (*([self.first] if self.first else []), *self.others)

    @property
    def is_ready(self) -> bool:
        """Whether it can begin."""
        return self.first is None or self.first.is_ready


def plugins_of(job: Job) -> set[str]:
    """The methods that no process does a job of beside those of others, see `needs_own_process`."""
    return set(filter(needs_own_process, job.methods))


def run_job(job: Job, reporter: Reporter) -> list[Failure]:
    """Do a job; gives back what of it could not be done (tracebacks are in the logs of the records)."""
    stopping.check()
    failures: list[Failure] = []
    reporter.emit(JobStarted(str(job.folder)))
    try:
        with caught(failures, str(job), job.method, job.tasks):
            failures += job.do(reporter)
    finally:
        reporter.emit(JobFinished(str(job.folder)))
    return failures
