"""What a job is to whoever does it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from adaptive_bench import stopping
from adaptive_bench.errors import AdaptiveBenchError
from adaptive_bench.jobs.failure import Failure, caught
from adaptive_bench.jobs.plugins import needs_own_process
from adaptive_bench.progress import JobFinished, JobStarted, Reporter, UnitDone


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
