"""The sweep: which dial values to evaluate so that every level is between two measured points.

Dial values are asked for as shares of saved tokens; `method.dial_for` turns them into the method's own unit. On another
axis the saving differs: a gate of overhead `o` saves about `0.9 * tokens - o` net, so the grid must reach further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from adaptive_bench.store.evaluations import Point

# Points the sweep may add to the first grid to reach the levels, and to come close to one of them on either side.
EXTRA_POINTS, CLOSER_POINTS = 6, 2
# Aim a little past the level: a bracket that just misses it costs another evaluation.
_MARGIN = 0.02
_SMALLEST_STEP = 0.02
_SMALLEST_SLOPE = 0.05
_END = 1e-6
_SMALLEST_CHANGE = 1e-3  # of what is asked for, and of what is saved


class HasMaximum(Protocol):
    """The part of a method the sweep needs: the largest share of token-branches its dial can skip."""

    @property
    def max_saving(self) -> float: ...


class HasGrid(Protocol):
    """The part of the evaluation recipe the sweep needs."""

    @property
    def grid(self) -> Sequence[float]: ...

    @property
    def closeness(self) -> float | None: ...


def first_savings(method: HasMaximum, levels: Sequence[float], recipe: HasGrid) -> list[float]:
    """Shares of saved tokens to evaluate first, rising: nothing saved, then the grid as far as the dial goes.

    Args:
        method: Gives the end of the dial. A method whose dial cannot move gets one point.
        levels: Used as the grid when the recipe has none.
        recipe: Gives the grid.
    """
    wanted = (0.0, *(recipe.grid or levels))
    return sorted({round(min(saving, method.max_saving), 6) for saving in wanted if saving >= 0})


def next_saving(measured: Mapping[float, Point], levels: Sequence[float], axis: str, maximum: float) -> float | None:
    """The next share of saved tokens to ask for, or `None` when more points cannot help.

    Aims at the lowest level not reached yet, by a secant through the last two points: one jump to the highest level
    would leave those in between to an interpolation over a wide gap. A level below everything measured is out of reach,
    because the sweep starts at nothing saved. Every proposal lies at least 0.02 beyond the last one or is the dial's
    end, so asking again and again always comes to an end. Where the last point's saving on the axis is not known
    (the method was not timed that far, the task has no such phase), going on cannot help.

    Args:
        measured: The points so far, by the share of saved tokens that was asked for.
        levels: Levels that should be reached.
        axis: Name of the saving they are shares of (see `saving_name`).
        maximum: End of the dial (`method.max_saving`).
    """
    if not measured or not levels or not measured[max(measured)].on(axis):
        return None
    measured = {asked: point for asked, point in measured.items() if point.on(axis)}
    reached = max(point.at(axis) for point in measured.values())
    missing = [level for level in levels if level > reached]
    asked = sorted(measured)
    last = asked[-1]
    if not missing or last >= maximum - _END:
        return None
    if len(asked) < 2:
        return round(maximum, 6)
    before = asked[-2]
    slope = (measured[last].at(axis) - measured[before].at(axis)) / (last - before)
    if slope < _SMALLEST_SLOPE:
        return round(maximum, 6)
    step = (min(missing) - measured[last].at(axis)) / slope + _MARGIN
    return round(min(maximum, last + max(step, _SMALLEST_STEP)), 6)


def sweep(
    measure: Callable[[float], Point],
    method: HasMaximum,
    levels: Sequence[float],
    axis: str,
    recipe: HasGrid,
    also: Iterable[float] = (),
) -> dict[float, Point]:
    """Measure the first grid, then at most `EXTRA_POINTS` more until the highest level is reached, then for each level
    at most twice `CLOSER_POINTS` until it has a point close by on either side, if the recipe asks for that.

    Args:
        measure: Evaluates the method at a share of saved tokens.
        also: Shares that are measured beside the first grid.

    Returns:
        The measured points by the share of saved tokens that was asked for.
    """
    first = {*first_savings(method, levels, recipe), *also}
    measured = {saving: measure(saving) for saving in sorted(first)}
    for _ in range(EXTRA_POINTS):
        saving = next_saving(measured, levels, axis, method.max_saving)
        if saving is None:
            break
        measured[saving] = measure(saving)
    for level in sorted(levels) if recipe.closeness else ():
        _come_closer(measured, measure, level, axis, recipe.closeness or 0.0)
    return measured


def closer_saving(measured: Mapping[float, Point], level: float, axis: str, closeness: float) -> float | None:
    """The share of saved tokens to ask for next, so that a level is measured where it is judged: with a point on either
    side of it, not further away than `closeness`. `None` where that is so, or the level was not reached at all.

    Between two neighbours on the axis the one that is asked for lies on the line from one to the other.
    """
    known = sorted((point.at(axis), asked) for asked, point in measured.items() if point.on(axis))
    below = [found for found in known if found[0] <= level + _END]
    above = [found for found in known if found[0] >= level - _END]
    if not below or not above:
        return None
    (low, asked_low), (high, asked_high) = below[-1], above[0]
    if high - low <= _END or max(level - low, high - level) <= closeness:
        return None
    aim = level - closeness / 2 if level - low > closeness else level + closeness / 2
    return round(asked_low + (aim - low) / (high - low) * (asked_high - asked_low), 6)


def _come_closer(
    measured: dict[float, Point], measure: Callable[[float], Point], level: float, axis: str, closeness: float
) -> None:
    for _ in range(2 * CLOSER_POINTS):
        saving = closer_saving(measured, level, axis, closeness)
        if saving is None or min(abs(saving - asked) for asked in measured) < _SMALLEST_CHANGE:
            return
        before = [point.at(axis) for point in measured.values() if point.on(axis)]
        measured[saving] = point = measure(saving)
        # A dial that has no position in between, such as a number of layers, gives what was there.
        if not point.on(axis) or min(abs(point.at(axis) - known) for known in before) < _SMALLEST_CHANGE:
            return
