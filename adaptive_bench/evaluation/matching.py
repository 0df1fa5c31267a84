"""Matching: the score a method has at a given saving, read off its measured points.

Between two measured neighbours on the axis the score is interpolated linearly. Outside the measured range there is no
score: nothing is ever extrapolated. Every other saving that is known at both neighbours is interpolated along.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Literal

Axis = Literal["tokens", "core", "net", "claimed", "projected", "time"]
COUNTED: tuple[Axis, ...] = ("tokens", "core", "net")  # what the ledger counts, in every phase
MatchPhase = Literal["all", "prefill", "decode"]
MATCH_PHASES: tuple[MatchPhase, ...] = ("all", "prefill", "decode")
Status = Literal["ok", "outside", "partial", "inert"]
Flaw = Literal["inert", "non-monotone"]

# A method whose smallest saving is within this of nothing counts as "saves nothing" at level 0.
ZERO_LEVEL_TOLERANCE = 0.005
# Differences of a saving below this are noise of the measurement when a dial is judged.
FLAW_TOLERANCE = 1e-3
# Two measurements of the same time differ by so much; what lies within it of nothing saves no time and loses none.
TIME_TOLERANCE = 0.02
_SAME = 1e-9


def saving_name(axis: Axis, phase: MatchPhase = "all") -> str:
    """What a saving is called among those of a point: `net`, and of one phase alone `decode_net`."""
    return axis if phase == "all" else f"{phase}_{axis}"


@dataclass(frozen=True)
class Point:
    """One measured dial value: a score and the savings that came with it.

    Attributes:
        saved: Savings by name (see `saving_name`); `None`, or absent, where one is not known.
        seconds: Spent inside model calls.
    """

    dial: float
    score: float
    saved: Mapping[str, float | None]
    seconds: float = 0.0

    def on(self, name: str) -> bool:
        """Whether this saving is known."""
        return self.saved.get(name) is not None

    def at(self, name: str) -> float:
        """A saving that is known."""
        value = self.saved[name]
        assert value is not None
        return value

    @property
    def known(self) -> list[str]:
        """Names of the savings that are known."""
        return [name for name in self.saved if self.on(name)]


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
    """Scores at the levels.

    Rules:
        * A level is reached when it lies between the smallest and the largest measured saving, both included.
        * Near is not reached: 0.249 measured does not answer for 0.25. The one exception is level 0, which a method
          whose smallest saving is in (0, 0.005] answers with its score there; of saved time, in [-0.02, 0.02].
        * Points whose saving of this name is not known do not count.
        * Points with the same saving count as one: their mean.
        * `outside` marks a level that was not reached, `inert` a score of a method whose dial moves nothing.

    Args:
        points: Measured dial values in any order.
        levels: Savings asked for.
        name: The saving the levels are shares of (see `saving_name`).
    """
    points = [point for point in points if point.on(name)]
    merged = _merge(points, name)
    reached: Status = "inert" if "inert" in flaws(points, name) else "ok"
    return [_at(merged, level, name, reached) for level in levels]


def largest_saving(points: Iterable[Point], name: str) -> float:
    """The largest level that `match` reaches; points whose saving is not known do not count.

    Raises:
        ValueError: No point counts.
    """
    return max(point.at(name) for point in _merge((point for point in points if point.on(name)), name))


def flaws(points: Iterable[Point], name: str) -> tuple[Flaw, ...]:
    """What is wrong with a dial as a way of saving this.

    `inert`: several dial values, one saving (check that the method really skips). `non-monotone`: turning the dial one
    way sometimes saves more and sometimes less, so that neighbours on the axis need not be neighbours on the dial.
    """
    tolerance = TIME_TOLERANCE if name == "time" else FLAW_TOLERANCE
    by_dial = sorted((point for point in points if point.on(name)), key=lambda point: (point.dial, point.at(name)))
    savings = [point.at(name) for point in by_dial]
    if len({point.dial for point in by_dial}) < 2:
        return ()
    if max(savings) - min(savings) <= tolerance:
        return ("inert",)
    steps = [after - before for before, after in pairwise(savings)]
    if min(steps) < -tolerance and max(steps) > tolerance:
        return ("non-monotone",)
    return ()


def _merge(points: Iterable[Point], name: str) -> list[Point]:
    """One point per saving, sorted by saving."""
    ordered = sorted(points, key=lambda point: (point.at(name), point.score, point.dial))
    return [_mean(list(same)) for _, same in groupby(ordered, key=lambda point: round(point.at(name) / _SAME))]


def _mean(points: list[Point]) -> Point:
    if len(points) == 1:
        return points[0]

    def mean(values: Iterable[float]) -> float:
        return math.fsum(values) / len(points)

    common = [name for name in points[0].known if all(point.on(name) for point in points)]
    saved = {name: mean(point.at(name) for point in points) for name in common}
    of = {name: mean(getattr(point, name) for point in points) for name in ("dial", "score", "seconds")}
    return Point(saved=saved, **of)


def _at(points: list[Point], level: float, name: str, reached: Status) -> Matched:
    if not points:
        return Matched(level, None, {}, "outside")
    lowest, highest = points[0], points[-1]
    for point in points:
        if abs(point.at(name) - level) <= _SAME:
            return _matched(level, point, reached)
    if level == 0 and _is_nothing(lowest, highest, name):
        return _matched(level, lowest, reached)
    for before, after in pairwise(points):
        if before.at(name) <= level <= after.at(name):
            gap = after.at(name) - before.at(name)
            share = (level - before.at(name)) / gap
            between = _matched(level, _between(before, after, share), reached)
            return replace(between, saved={**between.saved, name: level}, gap=gap)
    return Matched(level, None, {}, "outside")


def _is_nothing(lowest: Point, highest: Point, name: str) -> bool:
    """Whether a method that does not reach level 0 exactly saves nothing there all the same."""
    if name == "time" and highest.at(name) < 0:  # nothing but noise, or a loss
        return lowest is highest and highest.at(name) >= -TIME_TOLERANCE
    return 0 < lowest.at(name) <= (TIME_TOLERANCE if name == "time" else ZERO_LEVEL_TOLERANCE)


def _between(before: Point, after: Point, share: float) -> Point:
    def mix(one: float, other: float) -> float:
        low, high = sorted((one, other))
        return min(max(one * (1 - share) + other * share, low), high)  # rounding must not leave the interval

    saved = {name: mix(before.at(name), after.at(name)) for name in before.known if after.on(name)}
    of = {name: mix(getattr(before, name), getattr(after, name)) for name in ("dial", "score", "seconds")}
    return Point(saved=saved, **of)


def _matched(level: float, point: Point, status: Status) -> Matched:
    saved = {name: point.at(name) for name in point.known}
    return Matched(level, point.score, saved, status, point.dial, point.seconds)
