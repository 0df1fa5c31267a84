"""The dial: the one value that moves saved compute, and what is known of the savings at its values."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_bench.errors import UsageError


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

    def check(self, value: float) -> float:
        """The value, if it is in range.

        Raises:
            UsageError: It is not.
        """
        if not self.minimum <= value <= self.maximum:
            raise UsageError(
                f"The dial {self.name!r} must lie in [{self.minimum:g}, {self.maximum:g}], got {value!r}; "
                f"{self.skip_nothing:g} skips nothing."
            )
        return float(value)

    def at(self, travel: float) -> float:
        """The value a share of the way from `skip_nothing` (0) to the other end of the range (1)."""
        end = self.minimum if self.skip_nothing == self.maximum else self.maximum
        return self.skip_nothing + travel * (end - self.skip_nothing)


class DialTable:
    """Measured pairs of a dial's travel (0 skips nothing, 1 is the other end) and the saving there."""

    def __init__(self) -> None:
        self.measured: dict[float, float] = {0.0: 0.0}

    def clear(self) -> None:
        """Forget every measurement (the weights changed)."""
        self.measured = {0.0: 0.0}

    def bracket(self, saving: float) -> tuple[float, float]:
        """The nearest measured travels that save at most and at least this much (1 if none saves as much)."""
        below = max(travel for travel, saved in self.measured.items() if saved <= saving)
        above = [travel for travel, saved in self.measured.items() if saved >= saving and travel >= below]
        return below, min(above, default=1.0)

    def nearest(self, saving: float) -> tuple[float, float]:
        """The measured travel whose saving comes closest, and that saving."""
        return min(self.measured.items(), key=lambda pair: (abs(pair[1] - saving), pair[0]))
