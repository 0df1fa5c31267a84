"""The dial: the one value that moves saved compute, what is known of the savings at its values, and how targets move
with training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, cast

from adaptive_bench.errors import PluginFault, UsageError

# Of the share of tokens: a dial this close to it is not refined. Where prompts never exit, the saving that a table
# matches moves several times as fast.
TOLERANCE = 0.0005
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
        """Refuse what no dial is."""
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
    """The saving that `dial_for` turns into a dial value: the middle of all that it turns into it."""
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


REACHED_AT = 0.7  # share of the training's steps after which a target is held


def annealed(start: float, end: float, step: int, total_steps: int) -> float:
    """A target at optimizer step `step` of 1 .. total_steps: `start` at the first, `end` from `REACHED_AT` on."""
    travelled = (step - 1) / max(1.0, REACHED_AT * (total_steps - 1))
    return end if travelled >= 1.0 else start + travelled * (end - start)


def check_step(step: int, total_steps: int) -> None:
    """Refuse what is no optimizer step of a training."""
    if not 1 <= step <= total_steps:
        raise UsageError(
            f"A training's optimizer steps go from 1 to total_steps, got step {step!r} of {total_steps!r}. Count from "
            f"1, and give the number of steps of the whole training."
        )


Scale = Literal["linear", "log", "int", "choice"]
_FORM = "linear:LOW:HIGH, log:LOW:HIGH, int:LOW:HIGH or choice:A|B|C"


@dataclass(frozen=True)
class SearchRange:
    """The values a tuning may try for one parameter.

    Attributes:
        scale: `linear` and `log` draw numbers between `low` and `high`, `int` whole ones, `choice` one of `choices`.
        low, high: Ends of the range, both included; unused for a choice.
        choices: The values as text.
        source: Where the range comes from: a section of a paper, released code, or why it is a guess.
    """

    scale: Scale
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()
    source: str = ""

    @classmethod
    def parse(cls, text: str, source: str = "") -> SearchRange:
        """Read `log:1e-3:1`, `linear:0:1`, `int:1:4` or `choice:l1|l2`."""
        scale, _, rest = text.partition(":")
        if scale == "choice":
            choices = tuple(dict.fromkeys(part.strip() for part in rest.split("|") if part.strip()))
            if len(choices) < 2:
                raise UsageError(f"A choice needs two values or more, got {text!r}. Write choice:A|B.")
            return cls("choice", choices=choices, source=source)
        try:
            low, high = map(float, rest.split(":"))
        except ValueError:
            raise UsageError(f"A search range has the form {_FORM}, got {text!r}.") from None
        if scale not in ("linear", "log", "int") or not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise UsageError(f"A search range has the form {_FORM} with LOW below HIGH, got {text!r}.")
        if scale == "log" and low <= 0:
            raise UsageError(f"A logarithmic range begins above 0, got {text!r}. Use linear:{low:g}:{high:g}.")
        if scale == "int" and not (low.is_integer() and high.is_integer()):
            raise UsageError(f"A range of whole numbers ends at whole numbers, got {text!r}.")
        return cls(cast(Scale, scale), low, high, source=source)

    @property
    def ends(self) -> tuple[str, ...]:
        """The outermost values, or all choices, as text: what a config must accept."""
        return self.choices if self.scale == "choice" else (f"{self.low:g}", f"{self.high:g}")

    def __str__(self) -> str:
        inner = "|".join(self.choices) if self.scale == "choice" else f"{self.low:g}:{self.high:g}"
        return f"{self.scale}:{inner}"
