"""Shows one progress bar for all jobs, with the time left at the pace of the work just done.

Jobs are laid out on the workers in the order in which they are taken up. Their estimates are corrected by how many
times as long as expected recent units of work took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from types import TracebackType

from adaptive_bench.jobs.job import JobEstimate
from adaptive_bench.progress import Event, JobFinished, JobStarted, Reporter, RunningTask, UnitDone

_EVERY_S = 1.0
_HALF_S = 15.0  # half-life of what was seen, since other work on the machine begins and ends
_TRUST_S = 1.0  # seconds of observed work that the estimates weigh as much as


@dataclass
class JobProgress:
    """How many of a job's expected seconds are done."""

    estimate: JobEstimate
    heard_s: float = 0.0
    done_s: float = 0.0
    state: str = "waiting"


class OverallProgress(Reporter, AbstractContextManager["OverallProgress"]):
    """A reporter that passes events on, and shows a bar of all jobs from the events about jobs and units.

    Args:
        estimates: Estimates of all jobs, in the order in which they are handed out.
        workers: Number of jobs that are done at a time.
    """

    def __init__(
        self,
        reporter: Reporter,
        estimates: Iterable[JobEstimate],
        workers: int,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reporter, self.workers, self._now_s = reporter, workers, now_s
        self.jobs = {each.job: JobProgress(each) for each in estimates}
        self._of_unit = {unit: job for job in self.jobs.values() for unit in job.estimate.unit_s}
        self._took_s = self._expected_s = _TRUST_S
        self.total_s = self.left_s(0.0)
        self._bar: RunningTask = reporter.task("run", self.total_s)
        self._begun_s: float | None = None
        self._said_s = self._shown_s = 0.0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, trace)

    def emit(self, event: Event) -> None:
        """See `Reporter`."""
        self.reporter.emit(event)
        now_s, job = self._now_s(), None
        match event:
            case JobStarted(name) if job := self.jobs.get(name):
                job.state, job.heard_s = "running", now_s
            case UnitDone() if job := self._of_unit.get(event):
                self._note(job, now_s - job.heard_s, job.estimate.unit_s[event])
                job.heard_s = now_s
            case JobFinished(name) if job := self.jobs.get(name):
                job.state = "over"
        if job is not None:
            self._show(now_s, at_once=all(each.state == "over" for each in self.jobs.values()))

    def _note(self, job: JobProgress, took_s: float, expected_s: float) -> None:
        """Note how long a unit of a job took; earlier units lose weight."""
        job.done_s = min(job.done_s + expected_s, job.estimate.seconds)
        kept = 0.5 ** (took_s / _HALF_S)
        self._took_s = _TRUST_S + kept * (self._took_s - _TRUST_S) + took_s
        self._expected_s = _TRUST_S + kept * (self._expected_s - _TRUST_S) + expected_s

    def left_s(self, now_s: float) -> float:
        """Return the seconds until the last job ends."""
        pace = self._took_s / self._expected_s
        left = {name: (job.estimate.seconds - job.done_s) * pace for name, job in self.jobs.items()}
        running = [name for name, job in self.jobs.items() if job.state == "running"]
        ends = {name: max(0.0, left[name] - (now_s - self.jobs[name].heard_s)) for name in running}
        free = [*ends.values(), *[0.0] * (self.workers - len(ends))]
        heapify(free)
        waiting = [job.estimate for job in self.jobs.values() if job.state == "waiting"]
        for one in sorted(waiting, key=self._depth):  # jobs that others build on are taken up first
            ends[one.job] = max(heappop(free), ends.get(one.after or "", 0.0)) + left[one.job]
            heappush(free, ends[one.job])
        return max(ends.values(), default=0.0)

    def _depth(self, estimate: JobEstimate) -> int:
        base = self.jobs.get(estimate.after or "")
        return 0 if base is None or base.state == "over" else 1 + self._depth(base.estimate)

    def _show(self, now_s: float, *, at_once: bool) -> None:
        if self._begun_s is None:
            self._begun_s = self._said_s = now_s
        if not at_once and now_s - self._said_s < _EVERY_S:
            return
        self._said_s = now_s
        passed_s, left_s = now_s - self._begun_s, self.left_s(now_s)
        done_s = self.total_s * passed_s / (passed_s + left_s) if left_s else self.total_s
        self._bar.advance(max(0.0, done_s - self._shown_s), left_s=left_s)
        self._shown_s = max(done_s, self._shown_s)
