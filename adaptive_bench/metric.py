"""Knows the properties of metrics: which way is better, whether it is a share, and what its bounds are.

This is the only place with these facts; tables and intervals use it. A metric that is not listed is a number
of unknown direction without bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """Facts about a metric.

    Attributes:
        better: Which way is better.
        unit: A `share` is shown in percent, a `number` as it is.
        low, high: Bounds of its values; infinite if there is none.
        is_mean: Whether it is the mean of the values of single documents, if these are numbers.
    """

    better: Literal["higher", "lower", "unknown"] = "unknown"
    unit: Literal["share", "number"] = "number"
    low: float = -math.inf
    high: float = math.inf
    is_mean: bool = False


_SHARE = Metric("higher", "share", 0.0, 1.0)
_MEAN = Metric("higher", "share", 0.0, 1.0, is_mean=True)
_PERCENT = Metric("higher", "number", 0.0, 100.0)
_UNCERTAINTY = Metric("lower", "number", 1.0)  # perplexities
_KNOWN = {
    **dict.fromkeys(("acc", "acc_norm", "acc_bytes", "exact_match", "em"), _MEAN),
    "f1": _SHARE,
    "unparsable": Metric("lower", "share", 0.0, 1.0, is_mean=True),  # share of answers that cannot be read
    "mcc": Metric("higher", "number", -1.0, 1.0),
    **dict.fromkeys(("bleu", "chrf"), _PERCENT),
    "ter": Metric("lower", "number", 0.0),
    "brier_score": Metric("lower", "number", 0.0, 2.0),
    **dict.fromkeys(("perplexity", "word_perplexity", "byte_perplexity"), _UNCERTAINTY),
    "bits_per_byte": Metric("lower", "number", 0.0),
}


def metric_of(key: str) -> Metric:
    """Return the metric of an lm-eval key such as `exact_match,strict-match`; the filter does not matter."""
    return _KNOWN.get(key.split(",")[0], Metric())
