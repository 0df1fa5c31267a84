"""Mean and 95 % interval of a score over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.stats import t as student_t

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """A score over seeds.

    Attributes:
        mean: Mean over seeds.
        low, high: Ends of the 95 % interval, `None` when there is none. A t interval is not cut at 0 or 1.
        deviation: Sample standard deviation over seeds, `None` for one seed.
        seeds: Number of seeds.
        interval: Which interval it is: `t` over two or more seeds; `wilson` over the documents of one seed (it knows
            nothing of the spread between seeds); `none` for one seed of a score that is not a share of documents.
    """

    mean: float
    low: float | None
    high: float | None
    deviation: float | None
    seeds: int
    interval: Literal["t", "wilson", "none"]


def summarize(scores: Sequence[float], documents: int | None = None) -> Summary:
    """Mean and interval of one score per seed.

    Args:
        scores: At least one.
        documents: Number of documents each score is a share of; `None` for scores that are no shares.
    """
    count = len(scores)
    mean = statistics.fmean(scores)
    if count > 1:
        deviation = statistics.stdev(scores)
        half = float(student_t.ppf((1 + CONFIDENCE) / 2, count - 1)) * deviation / math.sqrt(count)
        return Summary(mean, mean - half, mean + half, deviation, count, "t")
    if documents and 0 <= mean <= 1:
        return Summary(mean, *wilson(mean, documents), None, count, "wilson")
    return Summary(mean, None, None, None, count, "none")


def wilson(share: float, documents: int) -> tuple[float, float]:
    """95 % interval of a share of independent documents. An interpolated share need not be a whole number of them."""
    z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    centre = share + z * z / (2 * documents)
    half = z * math.sqrt(share * (1 - share) / documents + (z / (2 * documents)) ** 2)
    scale = 1 + z * z / documents
    return max((centre - half) / scale, 0.0), min((centre + half) / scale, 1.0)
