"""95 % intervals of a mean score over two levels, the seeds of a training and the documents of a task."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from adaptive_bench.errors import UsageError
from adaptive_bench.metric import Metric
from adaptive_bench.tables.crossed import Crossed, Floats

CONFIDENCE = 0.95
Bounds = tuple[float, float]
SHARE: Bounds = (0.0, 1.0)
UNBOUNDED: Bounds = (-math.inf, math.inf)
Levels = Literal["seeds and documents", "documents", "seeds", "none"]

# Near the ends of the range few documents tell how documents vary. The spread that independent right-or-wrong documents
# would have is mixed in with the weight of so many of them. Chosen by simulation, see docs/statistics.md.
_PRIOR_DOCUMENTS = 0.1


def bounds_of(metric: Metric, scores: Iterable[Floats]) -> Bounds:
    """The range of a metric, unless scores lie outside: some tasks give in percent what is a share elsewhere (F1 of
    SQuAD).
    """
    inside = all(metric.low <= one.min() and one.max() <= metric.high for one in scores)
    return (metric.low, metric.high) if inside else UNBOUNDED


@dataclass(frozen=True)
class Interval:
    """A mean score with its interval.

    Attributes:
        mean: Mean over seeds and documents, in the metric's unit.
        low, high: Ends of the 95 % interval, inside the metric's range; `None` where there is a single score.
        seed_error: Standard error from the spread between seeds: more seeds would lessen it. `None` for one seed.
        document_error: Standard error from the spread between documents; `None` for one document.
        seeds: Number of seeds.
        documents: Number of documents.
        levels: What the interval knows of. That of one seed, `documents`, says how the very same trained model would do
            on other documents and nothing of another training.
    """

    mean: float
    low: float | None
    high: float | None
    seed_error: float | None
    document_error: float | None
    seeds: int
    documents: int
    levels: Levels


def interval(scores: ArrayLike, bounds: Bounds = SHARE) -> Interval:
    """Mean and 95 % interval of a score over seeds and documents.

    A score with two finite bounds has Wilson's interval (1927), its variance and quantile those of `Crossed`: it stays
    inside the bounds and has a width where all scores are equal. Any other has a t interval, cut at its bounds.

    Args:
        scores: [S, D], the score of each seed on each document. All seeds answer the same documents. A score that is
            no mean over documents has D = 1, and an interval over seeds alone.
        bounds: Smallest and largest value a score can have; infinite where there is none.

    Raises:
        UsageError: No score, not a table, a score that is not finite or outside the bounds.
    """
    return intervals([(scores, bounds)])[0]


def intervals(tables: Sequence[tuple[ArrayLike, Bounds]]) -> list[Interval]:
    """`interval` of many tables, each with its bounds; those of one shape are reckoned together."""
    alike: defaultdict[tuple[tuple[int, ...], Bounds], list[tuple[int, Floats]]] = defaultdict(list)
    for place, (scores, bounds) in enumerate(tables):
        table = checked(scores, bounds)
        alike[table.shape, bounds].append((place, table))
    found: dict[int, Interval] = {}
    for ((seeds, documents), bounds), some in alike.items():
        crossed = Crossed.of(np.array([table for _, table in some]))
        levels = levels_of(seeds, documents)
        ends = limits(crossed, seeds, documents, bounds)
        parts = (crossed.mean, *ends, np.sqrt(crossed.seed_variance), np.sqrt(crossed.document_variance))
        for (place, _), mean, low, high, of_seeds, of_documents in zip(
            some, *(part.tolist() for part in parts), strict=True
        ):
            found[place] = Interval(
                mean=mean,
                low=low if levels != "none" else None,
                high=high if levels != "none" else None,
                seed_error=of_seeds if seeds > 1 else None,
                document_error=of_documents if documents > 1 else None,
                seeds=seeds,
                documents=documents,
                levels=levels,
            )
    return [found[place] for place in range(len(tables))]


def limits(
    crossed: Crossed, seeds: int, documents: int, bounds: Bounds = SHARE, confidence: float = CONFIDENCE
) -> tuple[Floats, Floats]:
    """Ends of the intervals of one or many tables of S seeds and D documents."""
    lowest, highest = bounds
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        half = crossed.quantile(confidence) * np.sqrt(crossed.variance)
        return np.clip(crossed.mean - half, *bounds), np.clip(crossed.mean + half, *bounds)
    width, answers = highest - lowest, documents if documents > 1 else seeds
    share = np.clip((crossed.mean - lowest) / width, 0.0, 1.0)
    low, high = wilson(share, _squared_error(crossed, share, width, answers, confidence))
    # Rounding must leave neither the range nor the mean outside.
    low, high = (
        np.clip(lowest + width * low, lowest, crossed.mean),
        np.clip(lowest + width * high, crossed.mean, highest),
    )
    return low, high


def checked(scores: ArrayLike, bounds: Bounds) -> Floats:
    """Scores as a table [S, D] of finite numbers inside the bounds.

    Raises:
        UsageError: They are not.
    """
    table = np.asarray(scores, dtype=float)
    if table.ndim != 2 or not table.size:
        raise UsageError(
            f"Scores must be a table of seeds by documents with at least one of each, got shape {table.shape}. Give a "
            f"row for each seed."
        )
    if not np.isfinite(table).all():
        raise UsageError("Scores must be finite numbers, and some are not. Leave documents without a score out.")
    if table.min() < bounds[0] or table.max() > bounds[1]:
        raise UsageError(
            f"Scores must lie in [{bounds[0]:g}, {bounds[1]:g}], got [{table.min():g}, {table.max():g}]. Give the "
            f"metric's own bounds."
        )
    return table


def levels_of(seeds: int, documents: int) -> Levels:
    """What an interval over so many seeds and documents knows of."""
    if seeds > 1:
        return "seeds and documents" if documents > 1 else "seeds"
    return "documents" if documents > 1 else "none"


def _squared_error(crossed: Crossed, share: Floats, width: float, answers: int, confidence: float) -> Floats:
    """Squared half width of a t interval over share * (1 - share): what z² / n is in Wilson's own interval."""
    independent = NormalDist().inv_cdf((1 + confidence) / 2) ** 2 / answers
    # Variance and spread vanish together: at an end of the range only the prior is left.
    return squared_error(crossed.quantile(confidence) ** 2 * crossed.variance / width**2, independent, share, answers)


def squared_error(squared: Floats, independent: float, share: Floats, answers: int) -> Floats:
    """A squared half width over share * (1 - share), mixed near the ends of the range with that of independent answers.

    Args:
        squared: Squared half widths, as shares of the range.
        independent: What the result would be of independent right-or-wrong answers.
        share: Where the means lie in the range, from 0 to 1.
        answers: How many answers a mean is of.
    """
    spread = share * (1 - share)
    estimated = np.divide(squared, spread, out=np.zeros_like(spread), where=spread > 0)
    informative = answers * np.minimum(share, 1 - share)
    prior = _PRIOR_DOCUMENTS * np.maximum(estimated, independent)
    return (informative * estimated + prior) / (informative + _PRIOR_DOCUMENTS)


def wilson(share: Floats, error: Floats) -> tuple[Floats, Floats]:
    """Wilson's limits of shares, with `error` in the place of z² / n."""
    centre = share + error / 2
    half = np.sqrt(error * share * (1 - share) + error**2 / 4)
    return (centre - half) / (1 + error), (centre + half) / (1 + error)
