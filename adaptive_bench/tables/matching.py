"""Matching: the score a method has at a given saving, read off its measured points.

Between two measured neighbours on the axis the score is interpolated linearly. Outside the measured range there is no
score: nothing is ever extrapolated. Every other saving that is known at both neighbours is interpolated along.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

import numpy as np

from adaptive_bench.store.evaluations import Point
from adaptive_bench.tables.crossed import Floats

Status = Literal["ok", "outside", "partial", "inert"]
Flaw = Literal["inert", "non-monotone"]

# A method whose smallest saving is within this of nothing counts as "saves nothing" at level 0.
ZERO_LEVEL_TOLERANCE = 0.005
# Differences of a saving below this are noise of the measurement when a dial is judged.
FLAW_TOLERANCE = 1e-3
# Two measurements of the same time differ by so much; what lies within it of nothing saves no time and loses none.
TIME_TOLERANCE = 0.02
# A score that is read off so close to a measured point is that point's: the other end of the line hardly counts.
_AS_MEASURED = 0.005
_SAME = 1e-9


class Interpolation(NamedTuple):
    """What a level is read off: measured points that have one saving, or those of two neighbours.

    Attributes:
        level: The saving asked for.
        status: `outside` where the level was not reached; then there are no points.
        below: Indices of the points with the level's saving, or with the next smaller one.
        above: Of the points with the next larger one; none where the level was measured.
        share: How much the larger one counts.
        gap: How far the two savings are apart.
    """

    level: float
    status: Status
    below: Sequence[int] = ()
    above: Sequence[int] = ()
    share: float = 0.0
    gap: float = 0.0

    def of(self, values: Floats) -> Floats:
        """Anything known of the points, at the level.

        Args:
            values: [P] or [P, N], of each point; NaN where it is not known.

        Returns:
            [] or [N]; NaN unless all the points that count know it.
        """
        low = _mean(values, self.below)
        if not self.above:
            return low
        high = _mean(values, self.above)
        # Rounding must not leave the interval.
        mixed = np.maximum(low * (1 - self.share) + high * self.share, np.minimum(low, high))
        return np.minimum(mixed, np.maximum(low, high))

    @property
    def distance(self) -> float:
        """How far the level is from the two savings, the further one of them; 0 if it was measured, give or take half a
        point.
        """
        near, far = sorted((self.gap * self.share, self.gap * (1 - self.share)))
        return 0.0 if near <= _AS_MEASURED else far

    def weights(self, points: int) -> Floats:
        """How much each of P points counts, [P]."""
        found = np.zeros(points)
        found[list(self.below)] = (1 - self.share) / len(self.below)
        if self.above:
            found[list(self.above)] = self.share / len(self.above)
        return found


@dataclass(frozen=True)
class Matched:
    """The score at a level, with all savings known there, the dial value and the seconds; nothing where the level was
    not reached.

    Attributes:
        gap: How far the two measured savings are apart between which the level was read off; 0 if it was measured.
    """

    level: float
    score: float | None
    saved: Mapping[str, float]
    status: Status
    dial: float = math.nan
    seconds: float = math.nan
    gap: float = 0.0


def match(points: Iterable[Point], levels: Sequence[float], name: str) -> list[Matched]:
    """Scores at the levels, by the rules of `mixes`.

    Args:
        points: Measured dial values in any order.
        levels: Savings asked for.
        name: The saving the levels are shares of (see `saving_name`).
    """
    points = list(points)
    names = list(dict.fromkeys(known for point in points for known in point.saved))
    columns = [(point.score, point.dial, point.seconds, *map(point.saved.get, names)) for point in points]
    values = np.array(columns, dtype=float)  # what is not known becomes NaN
    found = []
    for mix in mixes([point.dial for point in points], [point.saved.get(name) for point in points], levels, name):
        if not mix.below:
            found.append(Matched(mix.level, None, {}, "outside"))
            continue
        score, dial, seconds, *savings = mix.of(values).tolist()
        saved = {known: value for known, value in zip(names, savings, strict=True) if value == value}
        saved |= {name: mix.level} if mix.above else {}
        found.append(Matched(mix.level, score, saved, mix.status, dial, seconds, mix.gap))
    return found


def mixes(
    dials: Sequence[float], savings: Sequence[float | None], levels: Sequence[float], name: str
) -> list[Interpolation]:
    """Which points each level is read off.

    Rules:
        * A level is reached when it lies between the smallest and the largest measured saving, both included.
        * Near is not reached: 0.249 measured does not answer for 0.25. The one exception is level 0, which a method
          whose smallest saving is in (0, 0.005] answers with its score there; of saved time, in [-0.02, 0.02].
        * Points whose saving is not known do not count.
        * Points with the same saving count as one: their mean.
        * `outside` marks a level that was not reached, `inert` a score of a method whose dial moves nothing.

    Args:
        dials, savings: Of the measured points, in any order.
        levels: Savings asked for.
        name: The saving (see `saving_name`).
    """
    known = [(saving, place) for place, saving in enumerate(savings) if saving is not None]
    merged = _merge(known)
    timed = name == "time"
    reached: Status = "inert" if _flaw([(dials[place], saving) for saving, place in known], timed) == "inert" else "ok"
    return [_at(merged, level, timed, reached) for level in levels]


def largest_saving(points: Iterable[Point], name: str) -> float:
    """The largest level that `match` reaches; points whose saving is not known do not count.

    Raises:
        ValueError: No point counts.
    """
    known = [(point.at(name), place) for place, point in enumerate(points) if point.on(name)]
    return max(saving for saving, _ in _merge(known))


def flaws(points: Iterable[Point], name: str) -> tuple[Flaw, ...]:
    """What is wrong with a dial as a way of saving this.

    `inert`: several dial values, one saving (check that the method really skips). `non-monotone`: turning the dial one
    way sometimes saves more and sometimes less, so that neighbours on the axis need not be neighbours on the dial.
    """
    found = _flaw([(point.dial, point.at(name)) for point in points if point.on(name)], name == "time")
    return () if found is None else (found,)


def _flaw(measured: list[tuple[float, float]], timed: bool) -> Flaw | None:
    """Of dial values with their savings."""
    if len({dial for dial, _ in measured}) < 2:
        return None
    tolerance = TIME_TOLERANCE if timed else FLAW_TOLERANCE
    savings = [saving for _, saving in sorted(measured)]
    if max(savings) - min(savings) <= tolerance:
        return "inert"
    steps = [after - before for before, after in pairwise(savings)]
    return "non-monotone" if min(steps) < -tolerance and max(steps) > tolerance else None


_Merged = list[tuple[float, Sequence[int]]]  # savings, rising, with the points that have them


def _merge(known: list[tuple[float, int]]) -> _Merged:
    """Points with the same saving as one."""
    merged: _Merged = []
    for _, same in groupby(sorted(known), key=lambda one: round(one[0] / _SAME)):
        savings, places = zip(*same, strict=True)
        merged.append((savings[0] if len(savings) == 1 else math.fsum(savings) / len(savings), places))
    return merged


def _mean(values: Floats, places: Sequence[int]) -> Floats:
    if len(places) == 1:
        return values[places[0]]
    some = values[list(places)]
    return np.array([math.fsum(column) for column in some.reshape(len(places), -1).T]).reshape(some[0].shape) / len(
        places
    )


def _at(merged: _Merged, level: float, timed: bool, reached: Status) -> Interpolation:
    if not merged:
        return Interpolation(level, "outside")
    for saving, places in merged:
        if abs(saving - level) <= _SAME:
            return Interpolation(level, reached, places)
    if level == 0 and _is_nothing([saving for saving, _ in merged], timed):
        return Interpolation(level, reached, merged[0][1])
    for (before, below), (after, above) in pairwise(merged):
        if before <= level <= after:
            return Interpolation(level, reached, below, above, (level - before) / (after - before), after - before)
    return Interpolation(level, "outside")


def _is_nothing(savings: Sequence[float], timed: bool) -> bool:
    """Whether a method that does not reach level 0 exactly saves nothing there all the same."""
    if timed and savings[-1] < 0:  # nothing but noise, or a loss
        return len(savings) == 1 and savings[0] >= -TIME_TOLERANCE
    return 0 < savings[0] <= (TIME_TOLERANCE if timed else ZERO_LEVEL_TOLERANCE)
