"""Which methods differ: paired differences over shared seeds and documents, Holm's correction, and tie groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from adaptive_bench.errors import UsageError
from adaptive_bench.tables.crossed import Crossed, Floats
from adaptive_bench.tables.intervals import CONFIDENCE, SHARE, Bounds, Levels, checked, levels_of

# A bounded score has two documents more that favour each side by a half, a quarter of the time each (Agresti and Min,
# Statistics in Medicine 24, 2005): without them a few documents that all agree would be certain.
_PRIOR_DOCUMENTS = 2


@dataclass(frozen=True)
class Difference:
    """How much better one method scores than another on the same documents.

    Attributes:
        difference: Mean of the first less mean of the second.
        low, high: 95 % interval, inside what the bounds allow; `None` where there is a single pair of scores.
        p: Two-sided p-value of no difference, not corrected for other comparisons; `None` as above.
        seeds, documents: How many both have.
        levels: What the interval knows of, as in `Interval`.
    """

    difference: float
    low: float | None
    high: float | None
    p: float | None
    seeds: int
    documents: int
    levels: Levels


def paired_difference(first: ArrayLike, second: ArrayLike, bounds: Bounds = SHARE) -> Difference:
    """Difference of two methods with its interval and p-value.

    Seeds count as pairs too: methods of one seed are trained on the same text in the same order. p is 5 % where the
    interval just reaches 0, and falls from there as Student's t with the fewest degrees of freedom does: corrected for
    being many, p-values have to hold far out in the tail, where the interval's own quantile would be too small.

    Args:
        first, second: [S, D], scores of the same seeds on the same documents.
        bounds: Smallest and largest value a score can have; infinite where there is none.

    Raises:
        UsageError: The tables have different shapes, or see `interval`.
    """
    one, other = checked(first, bounds), checked(second, bounds)
    if one.shape != other.shape:
        raise UsageError(
            f"Paired methods need scores of the same seeds and documents, got {one.shape} and {other.shape}. Take what "
            f"they share: DocumentScores.shared."
        )
    seeds, documents = one.shape
    levels = levels_of(seeds, documents)
    if levels == "none":
        return Difference(float((one - other).mean()), None, None, None, seeds, documents, levels)
    mean, low, high, p = (float(part[0]) for part in differences((one - other)[None], bounds))
    return Difference(mean, low, high, p, seeds, documents, levels)


def differences(tables: Floats, bounds: Bounds) -> tuple[Floats, Floats, Floats, Floats]:
    """Means, ends of the intervals and p-values of many tables of differences [N, S, D]."""
    seeds, documents = tables.shape[1:]
    crossed = Crossed.of(tables)
    width = bounds[1] - bounds[0]
    centre, variance = crossed.mean, crossed.variance
    if math.isfinite(width):
        answers, repeats = (documents, seeds) if documents > 1 else (seeds, 1)
        shrunk = answers / (answers + _PRIOR_DOCUMENTS)
        centre = centre * shrunk
        variance = variance * shrunk**2 + (width / (answers + _PRIOR_DOCUMENTS)) ** 2 / repeats
    error = np.sqrt(variance)
    half = crossed.quantile(CONFIDENCE) * error
    ratio = np.divide(np.abs(centre), half, out=np.where(centre == 0, 0.0, np.inf), where=half > 0)
    # Student's t by the functions behind `scipy.stats`, which takes half a second to import.
    freedom = crossed.least_freedom
    p = 2 * stdtr(freedom, ratio * stdtrit(freedom, (1 - CONFIDENCE) / 2))
    low, high = np.clip(centre - half, -width, width), np.clip(centre + half, -width, width)
    return crossed.mean, np.minimum(low, crossed.mean), np.maximum(high, crossed.mean), np.asarray(p, dtype=float)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for being many (Holm, Scandinavian Journal of Statistics 6, 1979), in the given order."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def anchored(order: Sequence[str], apart: Callable[[str, str], bool]) -> list[tuple[str, ...]]:
    """Groups of those who are not apart from the first of their group, who is the first of all that are left."""
    groups: list[tuple[str, ...]] = []
    left = tuple(order)
    while left:
        leader, *others = left
        groups.append((leader, *(name for name in others if not apart(leader, name))))
        left = tuple(name for name in others if name not in groups[-1])
    return groups
