"""Shows one progress bar for all jobs, with the time left at the speed measured so far.

Jobs are laid out on the workers in the order in which they are taken up. Their initial estimates are corrected while
jobs run: by the real seconds per expected second of jobs of the same kind, by a job's own speed, and by the recent pace
of all work, since the load of a machine changes for all kinds at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from types import TracebackType

from adaptive_bench.jobs.job import JobEstimate
from adaptive_bench.progress import Event, JobFinished, JobStarted, Reporter, RunningTask, UnitDone

_TRUST_S = 20.0  # seconds of observed work that an earlier guess weighs as much as
_EVERY_S = 1.0
_HALF_S = 20.0  # half-life of what was seen, since other work on the machine begins and ends
_TRUST_RECENT_S = 10.0
_MOST_CHANGE = 4.0


@dataclass
class ProgressBudget:
    """The seconds that a job is expected to take, and how many of them are done."""

    estimate: JobEstimate
    begun_s: float = 0.0
    heard_s: float = 0.0
    done_s: float = 0.0
    state: str = "waiting"

    def spend(self, seconds: float, now_s: float) -> None:
        """Count expected seconds as done, up to all of them."""
        self.done_s, self.heard_s = min(self.done_s + seconds, self.estimate.seconds), now_s

    def left_s(self, factor: float, pace: float, now_s: float) -> float:
        """Return the seconds left from now on, if jobs of its kind take `factor` times as long as expected.

        Args:
            pace: How many times as long as that all work takes recently.
        """
        if self.state == "waiting":
            return self.estimate.seconds * factor * pace
        own = pace * _blend(self.heard_s - self.begun_s, self.done_s, factor)
        return max(0.0, (self.estimate.seconds - self.done_s) * own - (now_s - self.heard_s))


class RecentPace:
    """Real and expected seconds of recent work, by kind."""

    def __init__(self) -> None:
        self._took_s: dict[str, float] = {}
        self._expected_s: dict[str, float] = {}

    def note(self, kind: str, took_s: float, expected_s: float) -> None:
        """Note how long a unit took; earlier units lose weight."""
        kept = 0.5 ** (took_s / _HALF_S)
        for sums, seconds in ((self._took_s, took_s), (self._expected_s, expected_s)):
            for other in sums:
                sums[other] *= kept
            sums[kind] = sums.get(kind, 0.0) + seconds

    def over(self, factors: Mapping[str, float]) -> float:
        """Return how many times as long as these factors of kinds predict all work takes recently. The result is damped
        and limited, since one slow unit says little.
        """
        known_s = sum(factors[kind] * seconds for kind, seconds in self._expected_s.items())
        found = (sum(self._took_s.values()) + _TRUST_RECENT_S) / (known_s + _TRUST_RECENT_S)
        return min(max(found, 1 / _MOST_CHANGE), _MOST_CHANGE)


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
        self.budgets = {each.job: ProgressBudget(each) for each in estimates}
        self._of_unit = {unit: budget for budget in self.budgets.values() for unit in budget.estimate.unit_s}
        self._pace = RecentPace()
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
        now_s, budget = self._now_s(), None
        match event:
            case JobStarted(job) if budget := self.budgets.get(job):
                if budget.state == "waiting":
                    budget.begun_s = budget.heard_s = now_s
                budget.state = "running"
            case UnitDone() if budget := self._of_unit.get(event):
                self._pace.note(budget.estimate.kind, now_s - budget.heard_s, budget.estimate.unit_s[event])
                budget.spend(budget.estimate.unit_s[event], now_s)
            case JobFinished(job) if budget := self.budgets.get(job):
                budget.spend(0.0, now_s)
                budget.state = "over"
        if budget is not None:
            self._show(now_s, at_once=all(each.state == "over" for each in self.budgets.values()))

    def left_s(self, now_s: float) -> float:
        """Return the seconds until the last job ends."""
        factors = self._factors()
        pace = self._pace.over(factors)
        left = {
            name: budget.left_s(factors[budget.estimate.kind], pace, now_s)
            for name, budget in self.budgets.items()
            if budget.state != "over"
        }
        ends = {name: left[name] for name in left if self.budgets[name].state == "running"}
        free = [*ends.values(), *[0.0] * (self.workers - len(ends))]
        heapify(free)
        waiting = [self.budgets[name].estimate for name in left if name not in ends]
        # Jobs that others build on are taken up first.
        for one in sorted(waiting, key=lambda each: self._depth(each)):
            ends[one.job] = max(heappop(free), ends.get(one.after or "", 0.0)) + left[one.job]
            heappush(free, ends[one.job])
        return max(ends.values(), default=0.0)

    def _depth(self, estimate: JobEstimate) -> int:
        base = self.budgets.get(estimate.after or "")
        return 0 if base is None or base.state == "over" else 1 + self._depth(base.estimate)

    def _factors(self) -> dict[str, float]:
        """Return the real seconds per expected second, by kind; a kind not seen yet is assumed to be like the one
        before it.
        """
        factors: dict[str, float] = {}
        guess = 1.0
        for kind in dict.fromkeys(budget.estimate.kind for budget in self.budgets.values()):
            seen = [one for one in self.budgets.values() if one.estimate.kind == kind and one.state != "waiting"]
            took_s = sum(one.heard_s - one.begun_s for one in seen)
            factors[kind] = guess = _blend(took_s, sum(one.done_s for one in seen), guess)
        return factors

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


def _blend(took_s: float, done_s: float, guess: float) -> float:
    """Return real seconds per expected second, with the guess weighing as much as `_TRUST_S` of observed work."""
    return (took_s + _TRUST_S * guess) / (done_s + _TRUST_S)
