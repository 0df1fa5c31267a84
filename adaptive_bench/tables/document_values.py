"""What each document adds to a metric: its own score where the metric is a mean of scores, else its part of a ratio."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from adaptive_bench.evaluation.record import Sample
from adaptive_bench.tables.crossed import Floats


@dataclass(frozen=True)
class _Pooled:
    """A metric that is `factor` times the log-likelihood lost over all documents by their size, or its exponential.

    Attributes:
        size: Of a document's text, as lm-eval counts it; `None` where every document counts as one.
    """

    size: Callable[[str], int] | None
    factor: float = 1.0
    exponential: bool = True


def _bytes(text: str) -> int:
    return len(text.encode())


def _words(text: str) -> int:
    return len(re.split(r"\s+", text))


_POOLED = {
    "bits_per_byte": _Pooled(_bytes, 1 / math.log(2), exponential=False),
    "byte_perplexity": _Pooled(_bytes),
    "word_perplexity": _Pooled(_words),
    "perplexity": _Pooled(None),
}


def is_pooled(metric: str) -> bool:
    """Whether a metric (an lm-eval key) is taken over all documents at once, so that the value of a document depends on
    which others were asked.
    """
    return metric.split(",")[0] in _POOLED


def document_values(metric: str, samples: Sequence[Sample]) -> dict[int, float]:
    """By document a value such that the metric is their mean, and their spread that of the metric; empty where samples
    do not tell.

    Of a ratio of sums, R = sum of t / sum of w, the value of a document is R + (t - R w) / mean of w; of its
    exponential, exp(R) (1 + (t - R w) / mean of w). This is the linearised ratio (Cochran, Sampling Techniques, 1977,
    chapter 6). It says how the metric moves when the document is left out, and is no score of the document alone.

    Args:
        metric: lm-eval key such as `bits_per_byte,none`.
    """
    pooled = _POOLED.get(metric.split(",")[0])
    if pooled is None:
        return {one.doc: one.scores[metric] for one in samples if metric in one.scores}
    parts = [_part(metric, pooled, one) for one in samples]
    known = np.array([part for part in parts if part is not None], dtype=float)
    if not samples or len(known) < len(samples):
        return {}
    lost, sizes = known.T
    values = linearised(pooled.factor * lost, sizes, exponential=pooled.exponential)
    return dict(zip([one.doc for one in samples], values.tolist(), strict=True)) if np.isfinite(values).all() else {}


def _part(metric: str, pooled: _Pooled, sample: Sample) -> tuple[float, int] | None:
    """Log-likelihood lost and size of a document; where all count as one, lm-eval gives the former as its score."""
    if pooled.size is None:
        return (-sample.scores[metric], 1) if metric in sample.scores else None
    if not isinstance(sample.output, float) or not isinstance(sample.target, str) or not sample.target:
        return None
    return -sample.output, pooled.size(sample.target)


def linearised(lost: ArrayLike, sizes: ArrayLike, *, exponential: bool = False) -> Floats:
    """Values [..., D] whose mean over D documents is the ratio sum(lost) / sum(sizes), or its exponential.

    Args:
        lost, sizes: [..., D] each.
    """
    above, below = np.asarray(lost, dtype=float), np.asarray(sizes, dtype=float)
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = above.sum(axis=-1, keepdims=True) / below.sum(axis=-1, keepdims=True)
        moved = (above - ratio * below) / below.mean(axis=-1, keepdims=True)
        return np.asarray(np.exp(ratio) * (1 + moved) if exponential else ratio + moved)
