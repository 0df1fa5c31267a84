"""Computes 95 % intervals of a mean score over two crossed levels: every seed of a training answers every document.

score[s, d] = mean + seed[s] + document[d] + interaction[s, d]. The variance of the mean over S seeds and D documents is
var_seed / S + var_document / D + var_interaction / (S D), estimated without bias from the mean squares of the table
(Searle, Casella, McCulloch, Variance Components, 1992, chapter 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from adaptive_bench.errors import UsageError
from adaptive_bench.store.measured import Floats
from adaptive_bench.task import Metric

CONFIDENCE = 0.95
Bounds = tuple[float, float]
SHARE: Bounds = (0.0, 1.0)
UNBOUNDED: Bounds = (-math.inf, math.inf)
Levels = Literal["seeds and documents", "documents", "seeds", "none"]

# Near the ends of a metric's range, only few documents tell how much documents vary. There the spread that independent
# right-or-wrong documents would have is mixed in, with the weight of this many documents. Chosen by simulation, see
# docs/statistics.md.
_PRIOR_DOCUMENTS = 0.1
# Chosen by simulation, see docs/statistics.md.
_THRESHOLD = 0.15  # share of the variance, per degree of freedom of the seeds, above which the seeds' part counts
_STEEPNESS = 4
_NOISE_TAKEN_OFF = 0.5  # share of the interaction taken off the seeds' part, with three seeds or more


@dataclass(frozen=True)
class Crossed:
    """Means and their variances for one or many tables of scores; the fields have the leading shape of the tables.

    Attributes:
        mean: Mean over seeds and documents.
        variance: Variance of the mean, over both levels, not negative.
        seed_variance, document_variance: The unbiased parts of the mean's variance that more seeds (more documents)
            would lessen, var_seed / S and var_document / D; a negative estimate is set to 0. With one seed, the
            documents' part holds the interaction, and with one document the seeds' part does.
        degrees_of_freedom: Degrees of freedom of Student's t for an interval of the mean at 90 to 95 %.
    """

    mean: Floats
    variance: Floats
    seed_variance: Floats
    document_variance: Floats
    degrees_of_freedom: Floats

    @classmethod
    def of(cls, scores: Floats) -> Crossed:
        """Compute means and variances of tables of scores [..., S, D]. A level with a single member has no variance."""
        seeds, documents = scores.shape[-2:]
        mean = scores.mean(axis=(-2, -1))
        by_seed, by_document = scores.mean(axis=-1), scores.mean(axis=-2)
        nothing = np.zeros_like(mean)
        of_seeds = by_seed.var(axis=-1, ddof=1) / seeds if seeds > 1 else nothing
        of_documents = by_document.var(axis=-1, ddof=1) / documents if documents > 1 else nothing
        both = nothing
        if seeds > 1 and documents > 1:
            # [..., S, D]: what neither seed nor document explains.
            rest = scores - by_seed[..., :, None] - by_document[..., None, :] + mean[..., None, None]
            both = (rest**2).sum(axis=(-2, -1)) / ((seeds - 1) * (documents - 1) * seeds * documents)
        # Each of the two holds the interaction, so their sum holds it twice. The sum minus the interaction can fall
        # below either of them by chance, hence the maximum.
        variance = np.maximum(of_seeds + of_documents - both, np.maximum(of_seeds, of_documents))
        degrees = _degrees_of_freedom(of_seeds, of_documents, both, variance, seeds, documents)
        return cls(mean, variance, np.maximum(of_seeds - both, 0), np.maximum(of_documents - both, 0), degrees)

    def quantile(self, confidence: float) -> Floats:
        """Return the two-sided quantile of Student's t."""
        from scipy.special import stdtrit  # takes a fifth of a second, which readers of a table need not wait for

        return np.asarray(-stdtrit(self.degrees_of_freedom, (1 - confidence) / 2), dtype=float)


def _degrees_of_freedom(
    of_seeds: Floats, of_documents: Floats, both: Floats, variance: Floats, seeds: int, documents: int
) -> Floats:
    """Return the degrees of freedom of a variance whose two parts have S - 1 and D - 1.

    Welch and Satterthwaite weight each part by its squared share. With few seeds that fails: if seeds vary much but the
    given ones are alike by chance, their share, and with it the quantile, comes out far too small (87 % coverage with
    two seeds). So the share has a threshold, below which it counts for little and above which it counts for all. With
    many seeds the weights become like Satterthwaite's.
    """
    safe = np.where(variance > 0, variance, 1.0)  # without variance the degrees are infinite: a normal quantile
    inverse = np.zeros_like(variance)
    if documents > 1:
        inverse = (of_documents / safe) ** 2 / (documents - 1)
    if seeds > 1:
        # Two seeds are too often alike by chance for any noise to be taken off.
        noise = both * (_NOISE_TAKEN_OFF if seeds > 2 else 0.0)
        share = (np.maximum(of_seeds - noise, 0) / safe) ** _STEEPNESS
        threshold = (_THRESHOLD * (seeds - 1)) ** _STEEPNESS
        # From 0 (seeds are alike) to 1 (all variance is theirs), rising most steeply near the threshold.
        weight = share * (1 + threshold) / (share + threshold)
        inverse = weight / (seeds - 1) + (1 - weight) * inverse
    return np.divide(1.0, inverse, out=np.full_like(inverse, np.inf), where=inverse > 0)


def bounds_of(metric: Metric, scores: Iterable[Floats]) -> Bounds:
    """Return the range of a metric, or no bounds if scores lie outside: some tasks give in percent what is a share
    elsewhere (F1 of SQuAD).
    """
    inside = all(metric.low <= one.min() and one.max() <= metric.high for one in scores)
    return (metric.low, metric.high) if inside else UNBOUNDED


@dataclass(frozen=True)
class Interval:
    """A mean score with its interval.

    Attributes:
        low, high: Ends of the 95 % interval, inside the metric's range; `None` if there is a single score.
        seed_error: Standard error from the spread between seeds, which more seeds would lessen; `None` for one seed.
        levels: What spread the interval takes into account. With one seed it is `documents`: the interval says
            how the same trained model would do on other documents, and nothing about another training.
    """

    mean: float  # mean over seeds and documents, in the metric's unit
    low: float | None
    high: float | None
    seed_error: float | None
    document_error: float | None  # standard error from the spread between documents; `None` for one document
    seeds: int
    documents: int
    levels: Levels


def interval(scores: ArrayLike, bounds: Bounds = SHARE) -> Interval:
    """Return mean and 95 % interval of a score over seeds and documents.

    A score with two finite bounds gets Wilson's interval (1927) with the variance and quantile of `Crossed`: it stays
    inside the bounds, and has a width even if all scores are equal. Any other score gets a t interval, cut at its
    bounds.

    Args:
        scores: [S, D], the score of each seed on each document. All seeds answer the same documents. A score that is
            no mean over documents has D = 1 and gets an interval over seeds alone.
        bounds: Smallest and largest value a score can have; infinite if there is none.

    Raises:
        UsageError: There is no score, the scores are no table, or a score is not finite or outside the bounds.
    """
    table = checked(scores, bounds)
    seeds, documents = table.shape
    crossed, levels = Crossed.of(table[None]), levels_of(seeds, documents)
    low, high = (None if levels == "none" else float(end[0]) for end in limits(crossed, seeds, documents, bounds))
    return Interval(
        mean=float(crossed.mean[0]),
        low=low,
        high=high,
        seed_error=math.sqrt(crossed.seed_variance[0]) if seeds > 1 else None,
        document_error=math.sqrt(crossed.document_variance[0]) if documents > 1 else None,
        seeds=seeds,
        documents=documents,
        levels=levels,
    )


def limits(
    crossed: Crossed, seeds: int, documents: int, bounds: Bounds = SHARE, confidence: float = CONFIDENCE
) -> tuple[Floats, Floats]:
    """Return the ends of the intervals of one or many tables of S seeds and D documents."""
    lowest, highest = bounds
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        # One bound is not enough for Wilson's interval: a t interval, cut there.
        half = crossed.quantile(confidence) * np.sqrt(crossed.variance)
        return np.clip(crossed.mean - half, *bounds), np.clip(crossed.mean + half, *bounds)
    # Wilson's interval is for shares: scores are moved into [0, 1] and back.
    width, answers = highest - lowest, documents if documents > 1 else seeds
    share = np.clip((crossed.mean - lowest) / width, 0.0, 1.0)
    # A t interval's squared half width over share * (1 - share), in place of z² / n.
    independent = NormalDist().inv_cdf((1 + confidence) / 2) ** 2 / answers
    squared = crossed.quantile(confidence) ** 2 * crossed.variance / width**2
    low, high = wilson(share, squared_error(squared, independent, share, answers))
    # Rounding must not put an end outside of the range, or the mean outside of the interval.
    low, high = (
        np.clip(lowest + width * low, lowest, crossed.mean),
        np.clip(lowest + width * high, crossed.mean, highest),
    )
    return low, high


def checked(scores: ArrayLike, bounds: Bounds) -> Floats:
    """Return scores as a table [S, D] of finite numbers inside the bounds.

    Raises:
        UsageError: The scores are no such table.
    """
    table = np.asarray(scores, dtype=float)
    if table.ndim != 2 or not table.size:
        raise UsageError(
            f"Scores must be a table of seeds by documents with at least one of each, got shape {table.shape}. Give a "
            f"row for each seed."
        )
    if not np.isfinite(table).all():
        raise UsageError("Scores must be finite numbers, and some are not. Leave out documents without a score.")
    if table.min() < bounds[0] or table.max() > bounds[1]:
        raise UsageError(
            f"Scores must lie in [{bounds[0]:g}, {bounds[1]:g}], got [{table.min():g}, {table.max():g}]. Give the "
            f"metric's own bounds."
        )
    return table


def levels_of(seeds: int, documents: int) -> Levels:
    """Return what spread an interval over so many seeds and documents takes into account."""
    if seeds > 1:
        return "seeds and documents" if documents > 1 else "seeds"
    return "documents" if documents > 1 else "none"


def squared_error(squared: Floats, independent: float, share: Floats, answers: int) -> Floats:
    """Return a squared half width over share * (1 - share). Near the ends of the range the value for independent
    answers is mixed in.

    Args:
        squared: Squared half widths, as shares of the range.
        independent: The result for independent right-or-wrong answers.
        share: Position of the means in the range, from 0 to 1.
        answers: Number of answers behind a mean.
    """
    spread = share * (1 - share)
    # Both vanish together, so at an end of the range only the prior is left.
    estimated = np.divide(squared, spread, out=np.zeros_like(spread), where=spread > 0)
    informative = answers * np.minimum(share, 1 - share)
    prior = _PRIOR_DOCUMENTS * np.maximum(estimated, independent)
    return (informative * estimated + prior) / (informative + _PRIOR_DOCUMENTS)


def wilson(share: Floats, error: Floats) -> tuple[Floats, Floats]:
    """Return Wilson's limits of shares, with `error` in place of z² / n."""
    centre = share + error / 2
    half = np.sqrt(error * share * (1 - share) + error**2 / 4)
    return (centre - half) / (1 + error), (centre + half) / (1 + error)
