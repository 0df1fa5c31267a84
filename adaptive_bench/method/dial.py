"""The dial: the one value that moves saved compute, and what is known of the savings at its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from adaptive_bench.errors import PluginFault, UsageError

TOLERANCE = 0.005  # of a saving: a dial this close to it is not refined
NARROWEST = 1e-5  # share of the way between the ends of a dial: no closer look


@dataclass(frozen=True)
class DialSpec:
    """The one value that moves saved compute.

    Attributes:
        name: The method's own word: budget, capacity, threshold, exit layer.
        minimum, maximum: Closed range.
        skip_nothing: The value at which every token executes everything.
    """

    name: str
    minimum: float
    maximum: float
    skip_nothing: float

    def __post_init__(self) -> None:
        """Refuse what no dial is.

        Raises:
            PluginFault: The range is none, or `skip_nothing` is at no end of it.
        """
        if not (self.minimum <= self.maximum and self.skip_nothing in (self.minimum, self.maximum)):
            raise PluginFault(
                f"A dial has a range and skips nothing at one end of it, got {self}. Correct the method's dial."
            )

    def check(self, value: float) -> float:
        """The value, if it is a number in range.

        Raises:
            UsageError: It is not.
        """
        value = float(value)
        if not self.minimum <= value <= self.maximum:
            raise UsageError(
                f"The dial {self.name!r} must lie in [{self.minimum:g}, {self.maximum:g}], got {value!r}; "
                f"{self.skip_nothing:g} skips nothing."
            )
        return value

    def at(self, travel: float) -> float:
        """The value a share of the way from `skip_nothing` (0) to the other end of the range (1)."""
        return self.skip_nothing + travel * (self._end - self.skip_nothing)

    def travel(self, value: float) -> float:
        """How far a value is on the way from `skip_nothing` (0) to the other end of the range (1)."""
        return 0.0 if value == self.skip_nothing else (value - self.skip_nothing) / (self._end - self.skip_nothing)

    @property
    def _end(self) -> float:
        return self.minimum if self.skip_nothing == self.maximum else self.maximum


class DialTable:
    """Measured pairs of a dial's travel (0 skips nothing, 1 is the other end) and the saving there."""

    def __init__(self) -> None:
        self.measured: dict[float, float] = {0.0: 0.0}

    def clear(self) -> None:
        """Forget every measurement (the weights changed)."""
        self.measured = {0.0: 0.0}

    def saving_at(self, travel: float) -> float | None:
        """The saving measured at a travel, linear between two neighbours, or `None` beyond what was measured."""
        for known, saving in self.measured.items():
            if abs(known - travel) < 1e-9:
                return saving
        for (low, below), (high, above) in pairwise(sorted(self.measured.items())):
            if low < travel < high:
                return below + (travel - low) / (high - low) * (above - below)
        return None

    def nearest(self, saving: float) -> tuple[float, float]:
        """The measured travel whose saving comes closest, and that saving: for a saving that was solved for the one
        found then, for another the closest of all.
        """
        return self.solve(saving) or _nearest(self.measured, saving)

    def solve(self, saving: float, measure: Callable[[float], float] | None = None) -> tuple[float, float] | None:
        """The travel whose saving comes closest, and that saving, by a bisection between the two ends of the dial.

        The way to a saving is the same whatever was solved for before, of which only the measurements are used again:
        a dial that were looked for between earlier ones would hang on which savings were asked for, and in what order.

        Args:
            saving: Wanted.
            measure: From a travel to the saving there. Without it nothing is measured, and a way that is not known to
                its end gives `None`.
        """
        low, high, travel = 0.0, 1.0, 0.0
        visited: dict[float, float] = {}
        while True:
            if travel not in self.measured:
                if measure is None:
                    return None
                self.measured[travel] = measure(travel)
            saved = visited[travel] = self.measured[travel]
            low, high = (travel, high) if saved <= saving else (low, travel)
            if abs(saved - saving) <= TOLERANCE or high - low < NARROWEST:
                return _nearest(visited, saving)
            travel = (low + high) / 2 if 1.0 in visited else 1.0


def _nearest(measured: Mapping[float, float], saving: float) -> tuple[float, float]:
    return min(measured.items(), key=lambda pair: (abs(pair[1] - saving), pair[0]))


def asked_saving(dial_for: Callable[[float], float], value: float, maximum: float) -> float:
    """The saving that `dial_for` turns into a dial value: the middle of all that it turns into it.

    Args:
        dial_for: From a saving in [0, maximum] to a dial value, never turning back.
        value: A dial value; one beyond those of all savings counts as the nearest one's.
        maximum: The largest saving.
    """
    direction = 1.0 if dial_for(maximum) >= dial_for(0.0) else -1.0

    def first(passes: Callable[[float], bool]) -> float:
        """The smallest saving whose dial value is far enough, by bisection."""
        low, high = 0.0, maximum
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if passes(direction * (dial_for(middle) - value)) else (middle, high)
        return high

    if direction * (dial_for(maximum) - value) <= 0:
        return maximum
    if direction * (dial_for(0.0) - value) >= 0:
        return 0.0
    return round((first(lambda beyond: beyond >= 0) + first(lambda beyond: beyond > 0)) / 2, 12)
