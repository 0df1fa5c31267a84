"""Computes differences of pairs of methods on the same documents: MOVER intervals, and p-values that agree with them.

MOVER (method of variance estimates recovery; Newcombe, Statistics in Medicine 17, 1998, pages 873-890; Zou and Donner,
Statistics in Medicine 27, 2008) combines the limits of two scores. For two scores p and q with limits [l, u] each it is

    low = p - q - sqrt((p - l_p)² + (u_q - q)² - 2 r (p - l_p) (u_q - q)),
    high = p - q + sqrt((u_p - p)² + (q - l_q)² - 2 r (u_p - p) (q - l_q)),

where r is the correlation of the two means. The limits are Wilson's, as for single scores, so the interval is
asymmetric near the ends of the range and stays inside what is possible. Scores without two finite bounds have t limits;
MOVER is then the t interval of their difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from adaptive_bench.store.measured import Floats
from adaptive_bench.tables.intervals import Bounds, Crossed, squared_error, wilson
from adaptive_bench.tables.seed_variance import Prior, Spread

# A bounded score gets two more documents, spread evenly over the four outcomes of a right-or-wrong pair, so that half a
# document favours each side (Agresti and Min, Statistics in Medicine 24, 2005). Without them a few documents that all
# agree would give certainty.
_PRIOR_DOCUMENTS = 2
_NEAREST, _FARTHEST = 1e-6, 1e3  # quantiles whose p is practically 1 and 0
_NOTHING = 1e-200  # in place of 0 in logarithms
_EXACT = 1e-10  # of the logarithm of an arm over the difference
_STEPS = 60


@dataclass(frozen=True)
class Pairs:
    """Differences of N pairs of methods.

    Attributes:
        means: [2, N], means of both methods.
        errors: [2, N], variances of the means; for bounded scores, the value that replaces 1 / n in Wilson's interval.
        correlation: [N], correlation of the two means.
        degrees: [N], degrees of freedom of the difference's variance.
        bounds: Smallest and largest value of a score.
    """

    means: Floats
    errors: Floats
    correlation: Floats
    degrees: Floats
    bounds: Bounds

    @classmethod
    def of(cls, spread: Spread, places: NDArray[np.intp], prior: Prior) -> Pairs:
        """Compare pairs of methods, given as indices [N, 2] into `spread`.

        Documents are paired, seeds are not: two methods trained with the same seed have hardly more in common than with
        different seeds, and pairing them would cost half of the degrees of freedom.
        """
        one, other = places.T
        seeds, documents = spread.shape
        between, known_with = prior.moderated(spread.seeds)
        of_seeds, of_documents = between / seeds, np.diag(spread.documents)
        # Both parts hold the interaction; see `Crossed`.
        alone = np.maximum(of_seeds + of_documents - spread.chance, np.maximum(of_seeds, of_documents))
        by_seeds = of_seeds[one] + of_seeds[other]
        by_documents = of_documents[one] + of_documents[other] - 2 * spread.documents[one, other]
        # Without the interaction, which the seeds' part holds already.
        rest = np.maximum(by_documents - spread.chance[one] - spread.chance[other], 0)
        doubt = _doubt(spread)
        rest, by_documents = rest + doubt, by_documents + doubt
        # Welch and Satterthwaite: each part of the variance is weighted by its squared share.
        inverse = np.zeros_like(rest)
        if seeds > 1:
            inverse += of_seeds[one] ** 2 / known_with[one] + of_seeds[other] ** 2 / known_with[other]
        if documents > 1:
            inverse += rest**2 / (documents - 1)
        total = (by_seeds + rest) ** 2
        degrees = np.divide(total, inverse, out=np.full_like(total, np.inf), where=inverse > 0)
        return cls._from(spread, places, alone, np.maximum(by_seeds + rest, by_documents), degrees)

    @classmethod
    def of_same_seeds(cls, scores: Floats, bounds: Bounds) -> Pairs:
        """Compare two tables [2, S, D] whose seeds are paired: two runs of one method, which a seed moves alike."""
        spread = Spread.of(scores, bounds)
        one, other = scores
        both = Crossed.of(one - other)
        variance = np.reshape(both.variance + _doubt(spread), 1)
        degrees = np.reshape(both.degrees_of_freedom, 1)
        return cls._from(spread, np.array([[0, 1]]), Crossed.of(scores).variance, variance, degrees)

    @classmethod
    def _from(cls, spread: Spread, places: NDArray[np.intp], alone: Floats, variance: Floats, degrees: Floats) -> Pairs:
        """Make pairs from the variances of the means [K] and of their differences [N]."""
        one, other = places.T
        # From var(a - b) = var(a) + var(b) - 2 cov(a, b).
        covariance = (alone[one] + alone[other] - variance) / 2
        if math.isfinite(spread.bounds[1] - spread.bounds[0]):
            # Two means of right-or-wrong answers cannot share more variance than the less variable one has. Near the
            # ends, rounding and the prior could make it more, and then a wider arm would shorten an interval.
            covariance = np.minimum(covariance, np.minimum(alone[one], alone[other]))
        product = np.sqrt(alone[one] * alone[other])
        correlation = np.divide(covariance, product, out=np.zeros_like(product), where=product > 0)
        correlation = np.clip(correlation, -1.0, 1.0)
        return cls(spread.mean[places.T], _errors(spread, alone)[places.T], correlation, degrees, spread.bounds)

    @property
    def differences(self) -> Floats:
        """Differences [N], first minus second."""
        return np.asarray(self.means[0] - self.means[1])

    def p_values(self) -> Floats:
        """Return uncorrected two-sided p-values [N]: 1 minus the largest confidence whose interval excludes 0."""
        return np.asarray(np.where(self.differences == 0, 1.0, 2 * stdtr(self.degrees, -self._reach())), dtype=float)

    def _reach(self) -> Floats:
        """Return the quantiles [N] at which the intervals reach 0: the arm towards 0 is then as long as the difference.

        They are found by the Illinois variant of the secant method on logarithms, in which an arm is nearly linear.
        """
        distance = np.maximum(np.abs(self.differences), _NOTHING)
        # The end towards 0: the lower one of a positive difference, the upper one of a negative.
        first = self.differences > 0

        def excess(logarithm: Floats) -> Floats:
            below, above = self._arms(np.exp(logarithm))
            arm = self._joined(np.where(first, below[0], above[0]), np.where(first, above[1], below[1]))
            return np.asarray(np.log(np.maximum(arm, _NOTHING) / distance))

        low, high = np.full_like(distance, math.log(_NEAREST)), np.full_like(distance, math.log(_FARTHEST))
        under, over = excess(low), excess(high)
        # Settled from the start: 0 is still outside at the largest quantile, or inside already at the smallest.
        certain, guess = over <= 0, low
        settled = certain | (under >= 0)
        side = np.zeros_like(distance)
        for _ in range(_STEPS):
            secant = (low * over - high * under) / np.where(over > under, over - under, 1.0)
            guess = np.where((secant > low) & (secant < high), secant, (low + high) / 2)
            at = excess(guess)
            if (settled | (np.abs(at) < _EXACT)).all():
                break
            now = np.where(at > 0, 1.0, -1.0)
            # The value at an end that stays for a second time is halved, since that end might otherwise stay for good.
            half = np.where(now == side, 0.5, 1.0)
            under, over = np.where(now > 0, under * half, at), np.where(now > 0, at, over * half)
            low, high = np.where(now > 0, low, guess), np.where(now > 0, guess, high)
            side = now
        return np.asarray(np.where(certain, _FARTHEST, np.exp(guess)))

    def limits(self, alpha: Floats) -> tuple[Floats, Floats]:
        """Return the ends of the intervals with confidence 1 - alpha, [N] each."""
        below, above = self._arms(-stdtrit(self.degrees, alpha / 2))
        width = self.bounds[1] - self.bounds[0]
        # Two scores cannot differ by more than the range.
        low = np.maximum(self.differences - self._joined(below[0], above[1]), -width)
        high = np.minimum(self.differences + self._joined(above[0], below[1]), width)
        return low, high

    def _arms(self, quantile: Floats) -> tuple[Floats, Floats]:
        """Return how far the limits of both scores lie below and above the scores, [2, N] each."""
        lowest, highest = self.bounds
        if not math.isfinite(highest - lowest):
            arm = quantile * np.sqrt(self.errors)
            return arm, arm
        width = highest - lowest
        share = np.clip((self.means - lowest) / width, 0.0, 1.0)
        low, high = wilson(share, quantile**2 * self.errors)
        return width * np.maximum(share - low, 0.0), width * np.maximum(high - share, 0.0)

    def _joined(self, one: Floats, other: Floats) -> Floats:
        return np.sqrt(np.maximum(one**2 + other**2 - 2 * self.correlation * one * other, 0.0))


def _doubt(spread: Spread) -> float:
    """Return the variance that two more documents, half of one in favour of each side, would add to a difference."""
    (seeds, documents), width = spread.shape, spread.bounds[1] - spread.bounds[0]
    if documents == 1 or not math.isfinite(width):
        return 0.0
    return (width / (documents + _PRIOR_DOCUMENTS)) ** 2 / seeds


def _errors(spread: Spread, variance: Floats) -> Floats:
    lowest, highest = spread.bounds
    if not math.isfinite(highest - lowest):
        return variance
    width, answers = highest - lowest, spread.answers
    share = np.clip((spread.mean - lowest) / width, 0.0, 1.0)
    return squared_error(variance / width**2, 1 / answers, share, answers)
