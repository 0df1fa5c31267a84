"""The dial, which is the one value that moves saved compute; its measured savings, schedules, and search ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from adaptive_bench.errors import PluginFault, UsageError

# A dial whose share of saved tokens is this close to the wanted share is not refined. The tolerance is small because
# the saving that a table matches moves several times as fast if prompts never exit.
TOLERANCE = 0.0005
NARROWEST = 1e-5  # bisection stops at this share of the dial's range


@dataclass(frozen=True)
class DialSpec:
    """The one value that moves saved compute.

    Attributes:
        name: The method's own name for it: budget, capacity, threshold, exit layer.
        minimum, maximum: Ends of the closed range.
        skip_nothing: The value at which every token executes everything.
    """

    name: str
    minimum: float
    maximum: float
    skip_nothing: float

    def __post_init__(self) -> None:
        """Raise a fault unless the dial skips nothing at one end of its range."""
        if not (self.minimum <= self.maximum and self.skip_nothing in (self.minimum, self.maximum)):
            raise PluginFault(
                f"A dial has a range and skips nothing at one end of it, got {self}. Correct the method's dial."
            )

    def check(self, value: float) -> float:
        """The value, if it is a number in range."""
        value = float(value)
        if not self.minimum <= value <= self.maximum:
            raise UsageError(
                f"The dial {self.name!r} must lie in [{self.minimum:g}, {self.maximum:g}], got {value!r}; "
                f"{self.skip_nothing:g} skips nothing."
            )
        return value

    def at(self, travel: float) -> float:
        """The value at a travel: the share of the way from `skip_nothing` (0) to the other end of the range (1)."""
        return self.skip_nothing + travel * (self._end - self.skip_nothing)

    def travel(self, value: float) -> float:
        """The travel of a value: its share of the way from `skip_nothing` (0) to the other end of the range (1)."""
        return 0.0 if value == self.skip_nothing else (value - self.skip_nothing) / (self._end - self.skip_nothing)

    @property
    def _end(self) -> float:
        return self.minimum if self.skip_nothing == self.maximum else self.maximum


class DialTable:
    """Measured pairs of a dial's travel (0 skips nothing, 1 is the other end) and its saving."""

    def __init__(self) -> None:
        self.measured: dict[float, float] = {0.0: 0.0}  # skipping nothing saves nothing, by definition

    def clear(self) -> None:
        """Forget every measurement (the weights changed)."""
        self.measured = {0.0: 0.0}

    def saving_at(self, travel: float) -> float | None:
        """The saving measured at a travel, interpolated linearly between neighbours; `None` beyond all measurements."""
        for known, saving in self.measured.items():
            if abs(known - travel) < 1e-9:  # a travel computed back from a dial value is off by rounding
                return saving
        for (low, below), (high, above) in pairwise(sorted(self.measured.items())):
            if low < travel < high:
                return below + (travel - low) / (high - low) * (above - below)
        return None

    def nearest(self, saving: float) -> tuple[float, float]:
        """A measured travel and its saving: the result of `solve` if this saving was solved for, otherwise the travel
        whose saving is closest of all measured ones.
        """
        return self.solve(saving) or _nearest(self.measured, saving)

    def solve(self, saving: float, measure: Callable[[float], float] | None = None) -> tuple[float, float] | None:
        """Find the travel whose saving comes closest, by bisection between the two ends of the dial; return both.

        The bisection visits the same points whatever was solved for before, and reuses only the measurements. A search
        that started from earlier points would depend on which savings were asked for, and in what order.

        Args:
            saving: The wanted saving.
            measure: Measures the saving at a travel. Without it, the result is `None` if the bisection needs a point
                that was not measured yet.
        """
        low, high, travel = 0.0, 1.0, 0.0
        visited: dict[float, float] = {}
        while True:
            if travel not in self.measured:
                if measure is None:
                    return None
                self.measured[travel] = measure(travel)
            saved = visited[travel] = self.measured[travel]
            # Assumes that the saving grows with the travel; if it does not, one of several crossings is found.
            low, high = (travel, high) if saved <= saving else (low, travel)
            if abs(saved - saving) <= TOLERANCE or high - low < NARROWEST:
                return _nearest(visited, saving)
            # 0 and 1 first: where the whole dial saves too little, the search ends with its other end.
            travel = (low + high) / 2 if 1.0 in visited else 1.0


def _nearest(measured: Mapping[float, float], saving: float) -> tuple[float, float]:
    # Of two equally close savings, the smaller travel.
    return min(measured.items(), key=lambda pair: (abs(pair[1] - saving), pair[0]))


def asked_saving(dial_for: Callable[[float], float], value: float, maximum: float) -> float:
    """The saving for which `dial_for` gives a dial value: the middle of the savings that lead to the same value."""
    # Some dials fall as the saving grows (budgets, exit layers).
    direction = 1.0 if dial_for(maximum) >= dial_for(0.0) else -1.0

    def first(passes: Callable[[float], bool]) -> float:
        """The smallest saving whose dial value passes, by bisection."""
        low, high = 0.0, maximum
        for _ in range(60):  # narrower than the rounding of any saving
            middle = (low + high) / 2
            low, high = (low, middle) if passes(direction * (dial_for(middle) - value)) else (middle, high)
        return high

    if direction * (dial_for(maximum) - value) <= 0:
        return maximum
    if direction * (dial_for(0.0) - value) >= 0:
        return 0.0
    # Rounded, since both bisections end slightly beyond the exact ends.
    return round((first(lambda beyond: beyond >= 0) + first(lambda beyond: beyond > 0)) / 2, 12)


REACHED_AT = 0.7  # share of the training's steps after which a target stays at its end


def annealed(start: float, end: float, step: int, total_steps: int) -> float:
    """A target at optimizer step `step` of 1 .. total_steps: `start` at the first, `end` from `REACHED_AT` on."""
    travelled = (step - 1) / max(1.0, REACHED_AT * (total_steps - 1))
    return end if travelled >= 1.0 else start + travelled * (end - start)


def check_step(step: int, total_steps: int) -> None:
    """Raise an error unless `step` lies in 1 .. total_steps."""
    if not 1 <= step <= total_steps:
        raise UsageError(
            f"A training's optimizer steps go from 1 to total_steps, got step {step!r} of {total_steps!r}. Count from "
            f"1, and give the number of steps of the whole training."
        )
