"""How much seeds differ: each method's own estimate, drawn towards what the methods of a column have in common.

Three or five seeds tell little of a variance, and a comparison of two methods pays for that with a quantile far out.
Methods of one board differ in it less than such estimates do, so that what all of them say is worth a few more seeds to
each: the moderated variance of Smyth (Statistical Applications in Genetics and Molecular Biology 3, 2004). What they
have in common is how much seeds move a logit. Near the ends of a metric's range the same movement changes the score
less, in proportion to p (1 - p), and what the interaction of seeds and documents adds is known of each method itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import polygamma, psi

from adaptive_bench.tables.crossed import Floats

# Degrees of freedom that the others may count for, at most and for each of a method's own. Chosen by simulation, see
# docs/statistics.md: with more, a method that is less steady than the others is taken to be as steady.
MOST_DEGREES = 4.0
MOST_FOR_OWN = 1.5
_FEWEST_METHODS = 3
_WIDEST, _FAINTEST = 100.0, 1e-14  # where the spread is looked for, as a share of the largest
_STEPS = 60


@dataclass(frozen=True)
class SeedVariances:
    """Variances between the seeds of K methods.

    Attributes:
        variance: [K], of a seed's score.
        chance: [K], the part of it that comes from the interaction with D documents, var_interaction / D.
        slope: [K], squared movement of the score for a movement of its logit by 1; 1 of a metric without bounds.
        seeds: [K], how many a variance is from.
    """

    variance: Floats
    chance: Floats
    slope: Floats
    seeds: NDArray[np.int_]

    @classmethod
    def joined(cls, some: Sequence[SeedVariances]) -> SeedVariances:
        """Of the methods of all of them."""
        parts = [(one.variance, one.chance, one.slope, one.seeds) for one in some]
        return cls(*(np.concatenate(part) for part in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Prior:
    """What the methods of a column say of each other's seeds.

    Attributes:
        spread: Variance of the logit between seeds; of a metric without bounds, of the score.
        degrees: Degrees of freedom that it counts for; 0 where nothing is known: then each method stands for itself.
    """

    spread: float = 0.0
    degrees: float = 0.0

    @classmethod
    def of(cls, known: SeedVariances, most: float | None = None) -> Prior:
        """Fitted to logarithms of the variances, which a single method moves little however its seeds collapse.

        Args:
            most: Degrees of freedom the prior has at most; by default as many as simulation showed to be safe.
        """
        used = (known.seeds > 1) & (known.variance > 0)
        if used.sum() < _FEWEST_METHODS:
            return cls()
        own, chance, slope = known.variance[used], known.chance[used], known.slope[used]
        degrees = known.seeds[used] - 1
        logs = np.log(own) - psi(degrees / 2) + np.log(degrees / 2)  # an estimate's logarithm lies low on average

        def left(spread: float) -> Floats:
            return np.asarray(logs - np.log(chance + slope * spread))

        high = _WIDEST * float((own / slope).max())
        low = high * _FAINTEST
        for _ in range(_STEPS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if left(middle).sum() > 0 else (low, middle)
        # How much more the logarithms differ than estimates of one and the same variance would.
        more = float(left(low).var(ddof=1) - polygamma(1, degrees / 2).mean())
        most = min(MOST_DEGREES, MOST_FOR_OWN * float(degrees.min())) if most is None else most
        return cls(low, most if more <= 0 else min(most, 2 * _inverse_trigamma(more)))

    def moderated(self, known: SeedVariances) -> tuple[Floats, Floats]:
        """Variances [K] and their degrees of freedom [K]; of a single seed there is none."""
        own = np.asarray(known.seeds - 1, dtype=float)
        degrees = np.where(own > 0, own + self.degrees, 0.0)
        common = known.chance + known.slope * self.spread
        mixed = (own * known.variance + self.degrees * common) / np.where(degrees > 0, degrees, 1.0)
        return np.where(own > 0, mixed, 0.0), degrees


def _inverse_trigamma(value: float) -> float:
    """The place where the trigamma function has this value, by Newton's method from Smyth's start."""
    place = 0.5 + 1 / value
    for _ in range(20):
        trigamma = float(polygamma(1, place))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, place))
        place += step
        if abs(step) < 1e-8 * place:
            break
    return place
