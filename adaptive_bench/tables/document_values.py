"""Computes what each document adds to a metric: its score if the metric is a mean of scores, or its part of a ratio."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from adaptive_bench.store.evaluation import Sample
from adaptive_bench.store.measured import Documents, Floats

_BITS = "bits_per_byte"
_EXPONENTIALS = ("byte_perplexity", "word_perplexity", "perplexity")  # cannot be split into parts of documents


def is_pooled(metric: str) -> bool:
    """Whether a metric (an lm-eval key) is computed over all documents at once, so that the value of a document depends
    on the other documents.
    """
    return metric.split(",")[0] in (_BITS, *_EXPONENTIALS)


def document_values(metric: str, samples: Sequence[Sample] | Documents) -> dict[int, float]:
    """Return a value for each document such that the metric is their mean and their spread is that of the metric; empty
    if the samples do not tell, and for perplexities.

    If the metric is a ratio of sums, R = sum of t / sum of w, the value of a document is R + (t - R w) / mean of w, the
    linearised ratio (Cochran, Sampling Techniques, 1977, chapter 6). It says how the metric moves when the document is
    left out, and is no score of the document alone. t are the bits lost and w the bytes of the document's text, as
    lm-eval counts them.

    Args:
        metric: lm-eval key such as `bits_per_byte,none`.
    """
    found = samples if isinstance(samples, Documents) else Documents.of(samples)
    if not is_pooled(metric):
        scores = found.scores.get(metric, np.array([]))
        return {doc: score for doc, score in zip(found.numbers, scores.tolist(), strict=False) if score == score}
    if metric.split(",")[0] != _BITS or not found.numbers or np.isnan(found.size_bytes).any():
        return {}
    values = linearised(-found.log_likelihood / math.log(2), found.size_bytes)
    return dict(zip(found.numbers, values.tolist(), strict=True)) if np.isfinite(values).all() else {}


def linearised(lost: ArrayLike, sizes: ArrayLike) -> Floats:
    """Return values [..., D] whose mean over D documents is the ratio sum(lost) / sum(sizes).

    Args:
        lost, sizes: [..., D] each.
    """
    above, below = np.asarray(lost, dtype=float), np.asarray(sizes, dtype=float)
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = above.sum(axis=-1, keepdims=True) / below.sum(axis=-1, keepdims=True)
        return np.asarray(ratio + (above - ratio * below) / below.mean(axis=-1, keepdims=True))
