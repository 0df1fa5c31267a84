"""Estimates how much seeds differ: each method's own variance, drawn towards what the methods of a column share.

Three or five seeds tell little about a variance, and a comparison of two methods pays for that with a quantile far out.
The true variances of methods on one board differ less than such estimates do, so the common value is worth a few more
seeds to each method: this is the moderated variance of Smyth (Statistical Applications in Genetics and Molecular
Biology 3, 2004). The common value is how much seeds move a logit. Near the ends of a metric's range the same movement
changes the score less, in proportion to p (1 - p). What the interaction of seeds and documents adds is taken from each
method itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import polygamma, psi

from adaptive_bench.store.measured import Floats
from adaptive_bench.tables.intervals import Bounds

# Largest number of degrees of freedom that the other methods may count for: in all, and for each of a method's own.
# Chosen by simulation, see docs/statistics.md: with more, a method that is less steady than the others would be taken
# to be as steady as they are.
MOST_DEGREES = 4.0
MOST_FOR_OWN = 1.5
_FEWEST_METHODS = 3
# The spread is searched up to `_WIDEST` times the largest estimate, and down to `_FAINTEST` of that.
_WIDEST, _FAINTEST = 100.0, 1e-14
_STEPS = 60


@dataclass(frozen=True)
class SeedVariances:
    """Variances between the seeds of K methods.

    Attributes:
        chance: [K], the part of the variance that comes from the interaction with D documents, var_interaction / D.
    """

    variance: Floats  # [K], variance of a seed's score
    chance: Floats
    slope: Floats  # [K], squared movement of the score when its logit moves by 1; 1 for a metric without bounds
    seeds: NDArray[np.int_]  # [K], number of seeds behind a variance

    @classmethod
    def joined(cls, some: Sequence[SeedVariances]) -> SeedVariances:
        """Join the variances of several groups of methods."""
        parts = [(one.variance, one.chance, one.slope, one.seeds) for one in some]
        return cls(*(np.concatenate(part) for part in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Prior:
    """The common estimate of the variance between seeds from all methods of a column.

    Attributes:
        spread: Variance of the logit between seeds; for a metric without bounds, of the score.
        degrees: Degrees of freedom that it counts for. With 0, nothing is known and each method has only its own
            estimate.
    """

    spread: float = 0.0
    degrees: float = 0.0

    @classmethod
    def of(cls, known: SeedVariances, most: float | None = None) -> Prior:
        """Fit a prior to the logarithms of the variances, on which one method with extreme seeds has little effect.

        Args:
            most: Largest number of degrees of freedom of the prior; by default as many as simulation showed to be safe.
        """
        used = (known.seeds > 1) & (known.variance > 0)
        if used.sum() < _FEWEST_METHODS:
            return cls()
        own, chance, slope = known.variance[used], known.chance[used], known.slope[used]
        degrees = known.seeds[used] - 1
        # The logarithm of a variance estimate is too low on average; psi corrects that.
        logs = np.log(own) - psi(degrees / 2) + np.log(degrees / 2)

        def left(spread: float) -> Floats:
            return np.asarray(logs - np.log(chance + slope * spread))

        high = _WIDEST * float((own / slope).max())
        low = high * _FAINTEST
        for _ in range(_STEPS):
            # Bisection on a logarithmic scale: `left` falls as the spread rises.
            middle = math.sqrt(low * high)
            low, high = (middle, high) if left(middle).sum() > 0 else (low, middle)
        # How much more the logarithms vary than they would if all methods had the same variance.
        more = float(left(low).var(ddof=1) - polygamma(1, degrees / 2).mean())
        most = min(MOST_DEGREES, MOST_FOR_OWN * float(degrees.min())) if most is None else most
        # Smyth's estimate: the excess variance of the logarithms is trigamma(degrees / 2).
        return cls(low, most if more <= 0 else min(most, 2 * _inverse_trigamma(more)))

    def moderated(self, known: SeedVariances) -> tuple[Floats, Floats]:
        """Return the moderated variances [K] and their degrees of freedom [K]; both are 0 for a single seed."""
        own = np.asarray(known.seeds - 1, dtype=float)
        degrees = np.where(own > 0, own + self.degrees, 0.0)
        common = known.chance + known.slope * self.spread
        # A mean of own and common variance, weighted by their degrees of freedom.
        mixed = (own * known.variance + self.degrees * common) / np.where(degrees > 0, degrees, 1.0)
        return np.where(own > 0, mixed, 0.0), degrees


def _inverse_trigamma(value: float) -> float:
    """Return where the trigamma function has this value, by Newton's method from Smyth's starting point."""
    place = 0.5 + 1 / value
    for _ in range(20):
        trigamma = float(polygamma(1, place))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, place))
        place += step
        if abs(step) < 1e-8 * place:
            break
    return place


@dataclass(frozen=True)
class Spread:
    """Mean scores of K methods on the same D documents with S seeds each, and their variances; see `Crossed`."""

    mean: Floats  # [K], mean score of each method
    seeds: SeedVariances  # variances between seeds
    documents: Floats  # [K, K], covariances of the means over documents: var_document / D and var_interaction / (S D)
    chance: Floats  # [K], var_interaction / (S D)
    shape: tuple[int, int]  # S and D
    answers: int  # number of answers behind a seed's score, D; S if the documents are not known
    bounds: Bounds  # smallest and largest value of a score

    @classmethod
    def of(cls, scores: Floats, bounds: Bounds) -> Spread:
        """Compute the spread of scores [K, S, D]. A level with a single member has no variance."""
        methods, seeds, documents = scores.shape
        by_seed, by_document = scores.mean(axis=2), scores.mean(axis=1)
        mean = by_document.mean(axis=1)
        between, chance, covariance = np.zeros(methods), np.zeros(methods), np.zeros((methods, methods))
        if seeds > 1:
            between = by_seed.var(axis=1, ddof=1)
        if documents > 1:
            # [K, D]: how far each document is from the method's mean; documents are the same for all methods.
            centred = by_document - mean[:, None]
            covariance = centred @ centred.T / ((documents - 1) * documents)
        if seeds > 1 and documents > 1:
            rest = scores - by_seed[:, :, None] - by_document[:, None, :] + mean[:, None, None]
            chance = (rest**2).sum(axis=(1, 2)) / ((seeds - 1) * (documents - 1) * seeds * documents)
        answers = documents if documents > 1 else seeds
        known = SeedVariances(between, chance * seeds, _slope(mean, answers, bounds), np.full(methods, seeds))
        return cls(mean, known, covariance, chance, (seeds, documents), answers, bounds)


def _slope(mean: Floats, answers: int, bounds: Bounds) -> Floats:
    """Return the squared movement of a score when its logit moves by 1; 1 for a metric without two finite bounds."""
    width = bounds[1] - bounds[0]
    if not math.isfinite(width):
        return np.ones_like(mean)
    # Half an answer more on either side keeps the share off the ends, where the slope is 0 and seeds could not differ.
    share = ((mean - bounds[0]) / width * answers + 0.5) / (answers + 1)
    return np.asarray((share * (1 - share) * width) ** 2)
