"""Matching: chooses the measured point that answers for a level of saving. It is the nearest one, as measured.

Nothing is interpolated: if no point meets a level within `CLOSE`, the nearest point still answers for it, and the table
says at which saving. Only the pages that reprint a paper's tables interpolate between points, as the paper does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np

from adaptive_bench.store.measured import Floats

# `missing`: no point knows the saving. `partial`: some seeds have no point.
Status = Literal["ok", "nearest", "partial", "inert", "missing"]
Flaw = Literal["inert", "non-monotone"]

CLOSE = 0.01  # one percentage point: a saving this near to a level meets it
FLAW_TOLERANCE = 1e-3  # when a dial is judged, smaller differences of a saving count as noise of the measurement
_ROUNDING = 1e-9  # of floating point: a saving of exactly one point away still meets the level


def nearest(savings: Sequence[float | None], level: float) -> int | None:
    """Return the index of the saving nearest to a level; of two equally near ones the larger, which favours no method.
    `None` if no saving is known.
    """
    known = [(abs(saving - level), -saving, place) for place, saving in enumerate(savings) if saving is not None]
    # Rounded, so that two points on either side of a level are equally near whatever floating point says.
    return min(((round(away, 9), less, place) for away, less, place in known), default=(0, 0, None))[2]


def nearest_target(targets: Iterable[float | None], level: float) -> float | None:
    """Return the training target nearest to a level; of two equally near ones the larger. `None` stands for a training
    without a target, which answers for all levels.
    """
    known = {target for target in targets if target is not None}
    return min(known, key=lambda target: (abs(target - level), -target), default=None)


def meets(saving: float, level: float) -> bool:
    """Whether a measured saving is within one percentage point of a level."""
    return abs(saving - level) <= CLOSE + _ROUNDING


def interpolated(savings: Sequence[float | None], values: Floats, level: float) -> Floats | None:
    """Interpolate values at a level linearly between the two measured neighbours, as the GateSkip paper does in its
    tables; `None` outside of the measured range. Points with equal savings are averaged.

    Args:
        values: [P] or [P, N], the values of each point.
    """
    by_saving: dict[float, list[int]] = {}
    for place, saving in enumerate(savings):
        if saving is not None:
            by_saving.setdefault(round(saving, 9), []).append(place)
    merged = [(saving, values[places].mean(axis=0)) for saving, places in sorted(by_saving.items())]
    if merged and level == 0 and 0 < merged[0][0] <= 0.005:  # the point saves nothing, up to rounding
        return np.asarray(merged[0][1])
    for (low, below), (high, above) in pairwise(merged):
        if low - _ROUNDING <= level <= high + _ROUNDING:
            share = min(max((level - low) / (high - low), 0.0), 1.0)
            return np.asarray(below * (1 - share) + above * share)
    only = [value for saving, value in merged if abs(saving - level) <= _ROUNDING]
    return np.asarray(only[0]) if only else None


def flaws(points: Iterable[tuple[float, float | None]]) -> tuple[Flaw, ...]:
    """Return what is wrong with a dial as a way to get a saving.

    `inert`: several dial values give one saving (check that the method really skips). `non-monotone`: turning the dial
    one way sometimes saves more and sometimes less.

    Args:
        points: Dial values, each with its saving if that is known.
    """
    measured = sorted((dial, saving) for dial, saving in points if saving is not None)
    if len({dial for dial, _ in measured}) < 2:
        return ()
    savings = [saving for _, saving in measured]
    if max(savings) - min(savings) <= FLAW_TOLERANCE:
        return ("inert",)
    steps = [after - before for before, after in pairwise(savings)]
    return ("non-monotone",) if min(steps) < -FLAW_TOLERANCE and max(steps) > FLAW_TOLERANCE else ()
