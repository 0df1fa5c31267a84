"""The bar of a whole run: every piece of work moves it by its share of the time, while it is being done."""

from __future__ import annotations

from adaptive_bench.progress import Info, Meter, Reporter

_CALIBRATION = "calibrate "  # what the tasks of a calibration are called


class Ration:
    """Seconds of the overall bar that one piece of work may move it by; what it leaves is spent at its end."""

    def __init__(self, overall: Meter, seconds: float) -> None:
        self.overall, self.left = overall, seconds

    def spend(self, seconds: float) -> None:
        """Move the bar, but not further than the ration goes."""
        seconds = min(seconds, self.left)
        if seconds > 0:
            self.left -= seconds
            self.overall.advance(seconds)

    def finish(self) -> None:
        """The work is over, however long it took."""
        self.spend(self.left)


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
        calibrates = name.startswith(_CALIBRATION) or f": {_CALIBRATION}" in name
        unit_s = self.calibration_s if calibrates else self.task_s / max(1, total - done)
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
