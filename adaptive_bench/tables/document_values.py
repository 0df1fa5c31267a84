"""What each document adds to a metric: its own score where the metric is a mean of scores, else its part of a ratio."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from adaptive_bench.store.evaluations import Sample

if TYPE_CHECKING:  # it imports SciPy, which costs a quarter of a second
    from adaptive_bench.tables.crossed import Floats

_BITS = "bits_per_byte"
_EXPONENTIALS = ("byte_perplexity", "word_perplexity", "perplexity")  # too far from a sum to be shared out


def is_pooled(metric: str) -> bool:
    """Whether a metric (an lm-eval key) is taken over all documents at once, so that the value of a document depends on
    which others were asked.
    """
    return metric.split(",")[0] in (_BITS, *_EXPONENTIALS)


def document_values(metric: str, samples: Sequence[Sample]) -> dict[int, float]:
    """By document a value such that the metric is their mean, and their spread that of the metric; empty where samples
    do not tell, and for perplexities.

    Of a ratio of sums, R = sum of t / sum of w, the value of a document is R + (t - R w) / mean of w, the linearised
    ratio (Cochran, Sampling Techniques, 1977, chapter 6). It says how the metric moves when the document is left out,
    and is no score of the document alone. t are the bits lost and w the bytes of its text, as lm-eval counts them.

    Args:
        metric: lm-eval key such as `bits_per_byte,none`.
    """
    if not is_pooled(metric):
        return {one.doc: one.scores[metric] for one in samples if metric in one.scores}
    parts = [_part(one) for one in samples] if metric.split(",")[0] == _BITS else []
    known = np.array([part for part in parts if part is not None], dtype=float)
    if not parts or len(known) < len(parts):
        return {}
    values = linearised(*known.T)
    return dict(zip([one.doc for one in samples], values.tolist(), strict=True)) if np.isfinite(values).all() else {}


def pooled_value(metric: str, samples: Sequence[Sample]) -> float | None:
    """A pooled metric, made again from its documents the way lm-eval makes it; `None` where samples do not tell.

    Args:
        metric: lm-eval key for which `is_pooled` holds.
    """
    name = metric.split(",")[0]
    if name == "perplexity":  # of answers, by the mean of their log-likelihoods
        values = [one.scores[metric] for one in samples if metric in one.scores]
        return _exp(-sum(values) / len(values)) if values else None
    parts = [_part(one) for one in samples]
    known = [part for part in parts if part is not None]
    if not parts or len(known) < len(parts):
        return None
    bits = sum(lost for lost, _ in known)
    if name == "word_perplexity":
        return _exp(bits * math.log(2) / sum(len(re.split(r"\s+", one.target)) for one in samples))
    per_byte = bits / sum(size for _, size in known)
    return per_byte if name == _BITS else _exp(per_byte * math.log(2))


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _part(sample: Sample) -> tuple[float, int] | None:
    """Bits lost and bytes of a document."""
    if not isinstance(sample.output, float) or not isinstance(sample.target, str) or not sample.target:
        return None
    return -sample.output / math.log(2), len(sample.target.encode())


def linearised(lost: ArrayLike, sizes: ArrayLike) -> Floats:
    """Values [..., D] whose mean over D documents is the ratio sum(lost) / sum(sizes).

    Args:
        lost, sizes: [..., D] each.
    """
    above, below = np.asarray(lost, dtype=float), np.asarray(sizes, dtype=float)
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = above.sum(axis=-1, keepdims=True) / below.sum(axis=-1, keepdims=True)
        return np.asarray(ratio + (above - ratio * below) / below.mean(axis=-1, keepdims=True))
