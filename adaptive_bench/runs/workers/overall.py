"""The bar of a whole run: every piece of work moves it by its share of the time, while it is being done."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adaptive_bench.progress import Info, Meter, Reporter
from adaptive_bench.runs.cost.forecast import Forecast

_CALIBRATION = "calibrate "  # what the tasks of a calibration are called
_EVERY_S = 1.0


class Clock(Meter):
    """Takes what works say of themselves, and shows how much of the run's time has passed and how much is left."""

    def __init__(self, meter: Meter, forecast: Forecast, now_s: Callable[[], float] = time.monotonic) -> None:
        self.meter, self.forecast, self.now_s = meter, forecast, now_s
        self.total, self.shown = forecast.left_s(0.0), 0.0
        self.begun_s: float | None = None
        self.said_s = 0.0

    def advance(self, units: float = 1, **info: Info) -> None:
        """So many of the seconds that the work `info["work"]` was expected to take are over, with `over=1` all."""
        now_s, over = self.now_s(), bool(info.get("over"))
        self.forecast.note(str(info["work"]), units, now_s, over=over)
        if self.begun_s is None:
            self.begun_s = self.said_s = now_s
        if not over and now_s - self.said_s < _EVERY_S:
            return
        self.said_s = now_s
        passed_s, left_s = now_s - self.begun_s, self.forecast.left_s(now_s)
        done = self.total * passed_s / (passed_s + left_s) if left_s else self.total
        self.meter.expect(left_s)
        self.meter.advance(max(0.0, done - self.shown))
        self.shown = max(done, self.shown)

    def end(self) -> None:
        self.meter.end()


class Ration:
    """Seconds of the overall bar that one piece of work may move it by; what it leaves is spent at its end."""

    def __init__(self, overall: Meter, seconds: float, work: str = "") -> None:
        self.overall, self.left, self.work = overall, seconds, work

    def spend(self, seconds: float) -> None:
        """Move the bar, but not further than the ration goes."""
        seconds = min(seconds, self.left)
        if seconds > 0:
            self.left -= seconds
            self.overall.advance(seconds, work=self.work)

    def finish(self) -> None:
        """The work is over, however long it took."""
        self.spend(self.left)


@dataclass(frozen=True)
class SweepTime:
    """What a sweep is expected to take of a work of several.

    Attributes:
        seconds: In all.
        point_s, calibration_s: For one point, and for making one dial value ready.
    """

    task: str
    seconds: float
    point_s: float
    calibration_s: float


class RationedReporter:
    """Passes everything on, and moves the overall bar with every task's own.

    Args:
        task_s: Seconds that a task is expected to take.
        calibration_s: The same for a task that calibrates, for each of its units.
        done: Units of the first task that were done before.
    """

    def __init__(
        self, reporter: Reporter, ration: Ration, task_s: float, *, calibration_s: float = 0.0, done: int = 0
    ) -> None:
        self.reporter, self.ration, self.task_s, self.calibration_s = reporter, ration, task_s, calibration_s
        self.done = done

    def task(self, name: str, total: float) -> Meter:
        """See `Reporter`."""
        done, self.done = self.done, 0
        unit_s = self.calibration_s if _calibrates(name) else self.task_s / max(1, total - done)
        return _RationedMeter(self.reporter.task(name, total), self.ration, unit_s, done)

    def line(self, text: str) -> None:
        """See `Reporter`."""
        self.reporter.line(text)


class _RationedMeter(Meter):
    def __init__(self, meter: Meter, ration: Ration, unit_s: float, done: float) -> None:
        self.meter, self.ration, self.unit_s, self.done = meter, ration, unit_s, done

    def advance(self, units: float = 1, **info: Info) -> None:
        self.meter.advance(units, **info)
        new = max(0, units - self.done)
        self.done = max(0, self.done - units)
        self.ration.spend(new * self.unit_s)

    def end(self) -> None:
        self.meter.end()


class SweepsReporter:
    """Rations the tasks of sweeps that follow each other: what one of them leaves is spent when the next begins."""

    def __init__(self, reporter: Reporter, overall: Meter, shares: Sequence[SweepTime], work: str = "") -> None:
        self.reporter, self.shares, self.place, self.scored = reporter, shares, 0, False
        self.rations = [Ration(overall, share.seconds, work) for share in shares]

    def task(self, name: str, total: float) -> Meter:
        """See `Reporter`."""
        calibrates = _calibrates(name)
        if self.place + 1 < len(self.shares) and self._turns(name, total, calibrates):
            self.rations[self.place].finish()
            self.place, self.scored = self.place + 1, False
        self.scored = self.scored or not calibrates
        share, ration = self.shares[self.place], self.rations[self.place]
        rationed = RationedReporter(self.reporter, ration, share.point_s, calibration_s=share.calibration_s)
        return rationed.task(name, total)

    def begin(self, place: int) -> None:
        """The sweep of this number begins, whatever became of those before."""
        for ration in self.rations[:place]:
            ration.finish()
        self.place, self.scored = place, False

    def _turns(self, name: str, total: float, calibrates: bool) -> bool:
        """Whether a task belongs to the next sweep: each begins with calibrating several dial values, if any."""
        now, following = self.shares[self.place].task, self.shares[self.place + 1].task
        if calibrates:
            return self.scored and total > 1
        return f"{following}, " in name and f"{now}, " not in name

    def line(self, text: str) -> None:
        """See `Reporter`."""
        self.reporter.line(text)

    def finish(self) -> None:
        """All of them are over."""
        for ration in self.rations:
            ration.finish()


def _calibrates(name: str) -> bool:
    return name.startswith(_CALIBRATION) or f": {_CALIBRATION}" in name
