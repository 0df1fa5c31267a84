"""Finds the shares of saved tokens to ask a method for, so that it reaches the savings (levels) at which it is judged.

A level, a saving on the axis of comparison, becomes a share that is asked for (here), which `Method.checked_dial` turns
into the dial's own unit; what is then measured becomes a row (`tables.matching`). The saving on another axis, or on
other text, differs from this share: with a vector gate 35 % of the tokens may have to be skipped to save 15 % of the
FLOPs. So each level is searched twice: first with a few cheap probes on held-out text, then on the task itself,
starting from the result, until the measured saving is close enough to the level. The level 0 is the dial at which
nothing is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

PROBES, REFINEMENTS = 6, 3  # per level: most probes on held-out text, most measurements of the task after the first
_PROBED_CLOSELY = 0.25  # tolerance of probes relative to that on the task: held-out text predicts the task no better
_SAME = 1e-3  # savings closer than this count as the same position of the dial
_SLOPES = 0.05, 20.0  # range of plausible slopes of the saving over the share asked for


@dataclass
class _Search:
    """Searches the share (up to `maximum`) at which a rising function (the saving) reaches a level.

    Attributes:
        slope: Slope to use while only one value is known.
        known: Known values by the share asked for.
        has_gap: The dial has no position between the two values around the level.
    """

    level: float
    maximum: float
    slope: float = 1.0
    known: dict[float, float] = field(default_factory=dict)
    has_gap: bool = False

    @property
    def nearest(self) -> float:
        """The share asked for whose value is nearest to the level."""
        return min(self.known, key=lambda asked: abs(self.known[asked] - self.level))

    def slope_at(self, asked: float) -> float:
        """The slope at a share: towards the nearest value on the other side of the level, else towards any value."""
        value = self.known[asked]
        # Values on the other side of the level sort first.
        others = [((v > self.level) == (value > self.level), abs(v - value), at) for at, v in self.known.items()]
        slope = value / asked if asked > 0 else 1.0
        if len(others) > 1:
            other = min(one for one in others if one[2] != asked)[2]
            slope = (value - self.known[other]) / (asked - other)
        return min(max(slope, _SLOPES[0]), _SLOPES[1])

    def next(self) -> float | None:
        """The next share to ask for, on the line through the two nearest values, on both sides of the level if
        possible; `None` if that share was asked for already.
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
            if slope < _SLOPES[0]:  # nearly flat: jump to the end
                found = self.maximum if below else 0.0
            else:
                # With values on one side only, the line may lead far astray: not below a third of the last share.
                found = max(asked + (self.level - value) / min(slope, _SLOPES[1]), asked / 3)
        found = round(min(max(found, 0.0), self.maximum), 6)
        return None if any(abs(found - asked) < 1e-6 for asked in self.known) else found

    def run(self, value_at: Callable[[float], float | None], first: float, close: float, most: int) -> None:
        """Ask until a value is `close` to the level, or the dial has no other position, with at most `most` further
        questions; `value_at` gives the value at a share, or `None` if it is unknown.
        """
        asked: float | None = first
        for number in range(most + 1):
            if asked is None or (value := value_at(asked)) is None:
                return
            # Values that this one repeats, although another share was asked for.
            before = [known for known in self.known.values() if abs(known - value) < _SAME]
            self.known[asked] = value
            if abs(value - self.level) <= close:
                return
            # A repeated value, with the level between known ones: the dial has no position there. The first share may
            # be known from another level, which says nothing.
            if number and before and min(self.known.values()) <= self.level <= max(self.known.values()):
                self.has_gap = True
                return
            asked = self.next()


def probed(probe: Callable[[float], float | None], level: float, maximum: float, close: float) -> _Search:
    """Search a level on held-out text, with at most `PROBES` probes, until the distance is at most `close`; `probe`
    gives the saving there at a share, or `None` if there is no such text.
    """
    search = _Search(level, maximum)
    search.run(probe, round(min(level, maximum), 6), close, PROBES - 1)
    return search


def sweep(
    measure: Callable[[float], float | None],
    probe: Callable[[float], float | None],
    levels: Sequence[float],
    maximum: float,
    closeness: float,
) -> dict[float, float | None]:
    """Measure a method at each level: first at the share that probes found, then at most `REFINEMENTS` times more.

    Args:
        measure: Evaluates the method at a share of saved tokens, and gives the saving if it is known.
        probe: Gives the saving on held-out text at that share, if known.
        levels: Savings to reach.
        maximum: Largest share that can be asked for (`method.max_saving`).
        closeness: Largest distance of a measured saving from a level.

    Returns:
        The measured savings by the share of saved tokens asked for.
    """
    measured: dict[float, float | None] = {}

    def saved(asked: float) -> float | None:
        if asked not in measured:
            measured[asked] = measure(asked)
        return measured[asked]

    for level in sorted(levels):
        if level <= 0 or maximum <= 0:
            # Nothing can be skipped, or nothing is to be: one point answers.
            saved(0.0)
            continue
        # Levels rise, and what was measured for the lower ones narrows the search for the next.
        search = _Search(level, maximum, known={at: one for at, one in measured.items() if one is not None})
        looked = probed(probe, level, maximum, closeness * _PROBED_CLOSELY)
        first, most = looked.nearest if looked.known else round(min(level, maximum), 6), REFINEMENTS
        if looked.known:
            search.slope, found = looked.slope_at(first), saved(first)
            # Held-out text showed that the dial has no position nearer to the level, and the task agrees: enough.
            if looked.has_gap and found is not None and abs(found - looked.known[first]) <= closeness:
                most = 0
        search.run(saved, first, closeness, most)
    return measured
