"""Solves a method's dial for the levels it is judged at.

The dial is asked for shares of saved tokens; `method.dial_for` turns them into the method's own unit. What that saves
on another axis, or on other text, is something else: with a vector gate 35 % of the tokens may have to be skipped to
save 15 % of the FLOPs. So each level is looked for twice. On held-out text, which is cheap, by a few probes; then on
the task itself, starting from there, until what was measured is as close to the level as wanted. A level of 0 is the
dial where nothing is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from adaptive_bench.store.evaluations import Point

PROBES, REFINEMENTS = 6, 3  # most on held-out text, and most measurements of the task after the first, for each level
_PROBED_CLOSELY = 0.25  # of how close a task is wanted: held-out text tells no more about it
_SAME = 1e-3  # savings nearer to each other are one position of the dial
_SLOPES = 0.05, 20.0  # of saving by what is asked for, that are believed


@dataclass
class _Search:
    """Looks for the share to ask for at which a rising function has some value.

    Attributes:
        maximum: End of what can be asked for.
        slope: Where one value alone is known.
        known: Values by what was asked for.
        has_gap: Nothing lies between the two nearest values: a dial with few positions.
    """

    level: float
    maximum: float
    slope: float = 1.0
    known: dict[float, float] = field(default_factory=dict)
    has_gap: bool = False

    @property
    def nearest(self) -> float:
        """What was asked for where the value is nearest to the one looked for."""
        return min(self.known, key=lambda asked: abs(self.known[asked] - self.level))

    def slope_at(self, asked: float) -> float:
        """How fast the value grows there: to the nearest value on the other side, else to any."""
        value = self.known[asked]
        # Those of the other side come first.
        others = [((v > self.level) == (value > self.level), abs(v - value), at) for at, v in self.known.items()]
        slope = value / asked if asked > 0 else 1.0
        if len(others) > 1:
            other = min(one for one in others if one[2] != asked)[2]
            slope = (value - self.known[other]) / (asked - other)
        return min(max(slope, _SLOPES[0]), _SLOPES[1])

    def next(self) -> float | None:
        """What to ask for next: on the line through the two nearest values, which lie on either side if there are such;
        `None` where there is nothing new to ask for.
        """
        ordered = sorted((value, asked) for asked, value in self.known.items())
        below = [one for one in ordered if one[0] <= self.level]
        above = [one for one in ordered if one[0] > self.level]
        if below and above:
            (low, first), (high, second) = below[-1], above[0]
            found = first + (self.level - low) / (high - low) * (second - first)
        else:
            (value, asked), *others = below[::-1] or above
            slope = self.slope
            if others and others[0][1] != asked:
                slope = (value - others[0][0]) / (asked - others[0][1])
            if slope < _SLOPES[0]:  # nearly nothing moves here
                found = self.maximum if below else 0.0
            else:
                found = max(asked + (self.level - value) / min(slope, _SLOPES[1]), asked / 3)
        found = round(min(max(found, 0.0), self.maximum), 6)
        return None if any(abs(found - asked) < 1e-6 for asked in self.known) else found

    def run(self, value_at: Callable[[float], float | None], first: float, close: float, most: int) -> None:
        """Ask until a value is close, or the dial has no other one.

        Args:
            value_at: `None` where no value is known.
            most: How often after the first.
        """
        asked: float | None = first
        for number in range(most + 1):
            if asked is None or (value := value_at(asked)) is None:
                return
            before = [known for known in self.known.values() if abs(known - value) < _SAME]
            self.known[asked] = value
            if abs(value - self.level) <= close:
                return
            if number and before and min(self.known.values()) <= self.level <= max(self.known.values()):
                self.has_gap = True
                return
            asked = self.next()


def probed(probe: Callable[[float], float | None], level: float, maximum: float, close: float) -> _Search:
    """Where a level is on held-out text, found in at most `PROBES` looks.

    Args:
        probe: Saving on held-out text where a share is asked for; `None` where there is no such text.
        close: How close to the level is enough.
    """
    search = _Search(level, maximum)
    search.run(probe, round(min(level, maximum), 6), close, PROBES - 1)
    return search


def sweep(
    measure: Callable[[float], Point],
    probe: Callable[[float], float | None],
    levels: Sequence[float],
    axis: str,
    maximum: float,
    closeness: float,
) -> dict[float, Point]:
    """Measure a method at each level: where probes say the level is, then at most `REFINEMENTS` times more.

    Args:
        measure: Evaluates the method where a share of saved tokens is asked for.
        probe: What is saved there of held-out text, as far as that is known.
        levels: Savings to be met.
        axis: Name of the saving they are shares of (see `saving_name`).
        maximum: End of the dial (`method.max_saving`).
        closeness: How far from a level a measured saving may be.

    Returns:
        The measured points by the share of saved tokens that was asked for.
    """
    measured: dict[float, Point] = {}

    def saved(asked: float) -> float | None:
        if asked not in measured:
            measured[asked] = measure(asked)
        return measured[asked].saved.get(axis)

    for level in sorted(levels):
        if level <= 0 or maximum <= 0:
            saved(0.0)
            continue
        search = _Search(level, maximum, known={at: one.at(axis) for at, one in measured.items() if one.on(axis)})
        looked = probed(probe, level, maximum, closeness * _PROBED_CLOSELY)
        first, most = looked.nearest if looked.known else round(min(level, maximum), 6), REFINEMENTS
        if looked.known:
            search.slope, found = looked.slope_at(first), saved(first)
            if looked.has_gap and found is not None and abs(found - looked.known[first]) <= closeness:
                most = 0
        search.run(saved, first, closeness, most)
    return measured
