"""Matching: the score a method has at a given saving, read off its measured points.

Between two measured neighbours on the axis the score is interpolated linearly. Outside the measured range there is no
score: nothing is ever extrapolated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Literal

Axis = Literal["tokens", "core", "net", "time"]
AXES: tuple[Axis, ...] = ("tokens", "core", "net")  # those every evaluation measures; `time` needs a timing besides
Status = Literal["ok", "outside", "partial", "inert"]
Flaw = Literal["inert", "non-monotone"]

# A method whose smallest saving is within this of nothing counts as "saves nothing" at level 0.
ZERO_LEVEL_TOLERANCE = 0.005
# Differences of a saving below this are noise of the measurement when a dial is judged.
FLAW_TOLERANCE = 1e-3
# Two measurements of the same time differ by so much; what lies within it of nothing saves no time and loses none.
TIME_TOLERANCE = 0.02
_SAME = 1e-9


@dataclass(frozen=True)
class Point:
    """One measured dial value: a score and the three savings that came with it, and saved time where it is known."""

    dial: float
    score: float
    tokens: float
    core: float
    net: float
    time: float | None = None

    def on(self, axis: Axis) -> bool:
        """Whether the saving on this axis is known."""
        return getattr(self, axis) is not None

    def at(self, axis: Axis) -> float:
        """The saving on one axis, where it is known."""
        return float(getattr(self, axis))


@dataclass(frozen=True)
class Matched:
    """The score at a level, with all three savings there; everything is `None` where the level was not reached."""

    level: float
    score: float | None
    saved_tokens: float | None
    saved_core: float | None
    saved_net: float | None
    status: Status


def match(points: Iterable[Point], levels: Sequence[float], axis: Axis) -> list[Matched]:
    """Scores at the levels.

    Rules:
        * A level is reached when it lies between the smallest and the largest measured saving, both included.
        * Near is not reached: 0.249 measured does not answer for 0.25. The one exception is level 0, which a method
          whose smallest saving is in (0, 0.005] answers with its score there; of saved time, in [-0.02, 0.02].
        * Points whose saving on the axis is not known do not count.
        * Points with the same saving count as one: their mean.
        * `outside` marks a level that was not reached, `inert` a score of a method whose dial moves nothing.

    Args:
        points: Measured dial values in any order.
        levels: Savings asked for.
        axis: The saving the levels are on.
    """
    points = [point for point in points if point.on(axis)]
    merged = _merge(points, axis)
    reached: Status = "inert" if "inert" in flaws(points, axis) else "ok"
    return [_at(merged, level, axis, reached) for level in levels]


def flaws(points: Iterable[Point], axis: Axis) -> tuple[Flaw, ...]:
    """What is wrong with a dial as a way of saving on this axis.

    `inert`: several dial values, one saving (check that the method really skips). `non-monotone`: turning the dial one
    way sometimes saves more and sometimes less, so that neighbours on the axis need not be neighbours on the dial.
    """
    tolerance = TIME_TOLERANCE if axis == "time" else FLAW_TOLERANCE
    by_dial = sorted((point for point in points if point.on(axis)), key=lambda point: (point.dial, point.at(axis)))
    savings = [point.at(axis) for point in by_dial]
    if len({point.dial for point in by_dial}) < 2:
        return ()
    if max(savings) - min(savings) <= tolerance:
        return ("inert",)
    steps = [after - before for before, after in pairwise(savings)]
    if min(steps) < -tolerance and max(steps) > tolerance:
        return ("non-monotone",)
    return ()


def _merge(points: Iterable[Point], axis: Axis) -> list[Point]:
    """One point per saving, sorted by saving."""
    ordered = sorted(points, key=lambda point: (point.at(axis), point.score, point.dial))
    return [_mean(list(same)) for _, same in groupby(ordered, key=lambda point: round(point.at(axis) / _SAME))]


def _mean(points: list[Point]) -> Point:
    if len(points) == 1:
        return points[0]
    columns = zip(*((point.dial, point.score, point.tokens, point.core, point.net) for point in points), strict=True)
    times = [point.time for point in points if point.time is not None]
    time = math.fsum(times) / len(times) if len(times) == len(points) else None
    return replace(Point(*(math.fsum(column) / len(points) for column in columns)), time=time)


def _at(points: list[Point], level: float, axis: Axis, reached: Status) -> Matched:
    if not points:
        return Matched(level, None, None, None, None, "outside")
    lowest, highest = points[0], points[-1]
    for end in (lowest, highest):
        if abs(end.at(axis) - level) <= _SAME:
            return _matched(level, end, reached)
    if level == 0 and _is_nothing(lowest, highest, axis):
        return _matched(level, lowest, reached)
    for before, after in pairwise(points):
        if before.at(axis) <= level <= after.at(axis):
            share = (level - before.at(axis)) / (after.at(axis) - before.at(axis))
            return _matched(level, replace(_between(before, after, share), **{axis: level}), reached)
    return Matched(level, None, None, None, None, "outside")


def _is_nothing(lowest: Point, highest: Point, axis: Axis) -> bool:
    """Whether a method that does not reach level 0 exactly saves nothing there all the same."""
    if axis == "time" and highest.at(axis) < 0:  # nothing but noise, or a loss
        return lowest is highest and highest.at(axis) >= -TIME_TOLERANCE
    return 0 < lowest.at(axis) <= (TIME_TOLERANCE if axis == "time" else ZERO_LEVEL_TOLERANCE)


def _between(before: Point, after: Point, share: float) -> Point:
    def mix(name: str) -> float:
        low, high = sorted((getattr(before, name), getattr(after, name)))
        mixed = getattr(before, name) * (1 - share) + getattr(after, name) * share
        return float(min(max(mixed, low), high))  # rounding must not leave the interval

    return Point(mix("dial"), mix("score"), mix("tokens"), mix("core"), mix("net"))


def _matched(level: float, point: Point, status: Status) -> Matched:
    return Matched(level, point.score, point.tokens, point.core, point.net, status)
