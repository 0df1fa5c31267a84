"""Computes FREE's adaptive threshold: the confidence from which the shallow model is likely to agree with the full one.

Paper: "Fast and Robust Early-Exiting Framework for Autoregressive Language Models with Synchronized Parallel Decoding",
https://arxiv.org/abs/2310.05424, section 3.4; grid and cut from the released code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scipy import stats

GRID = np.linspace(0.3, 0.9, 10)
POSTERIOR_CUT = 0.4


def beta_mixture_threshold(confidences: Sequence[float], agrees: Sequence[bool]) -> float:
    """The adaptive threshold (section 3.4): the lowest of 10 values in [0.3, 0.9] at which agreement is likely enough.

    One Beta distribution is fitted by moments to the confidences of tokens that agree, another to those of tokens that
    disagree. The threshold is the lowest grid value at which p_agree / (p_agree + p_disagree) of their densities
    exceeds 0.4, or the highest value if it does at none. As in the released code, the densities are not weighted by
    how many tokens agree.
    """
    values, labels = np.clip(np.asarray(confidences, float), 1e-3, 1 - 1e-3), np.asarray(agrees, bool)
    if not labels.any() or labels.all():
        return float(GRID[0] if labels.any() else GRID[-1])
    agree, differ = (_beta(values[which]).pdf(GRID) for which in (labels, ~labels))
    likely = agree / np.maximum(agree + differ, 1e-12) > POSTERIOR_CUT
    return float(GRID[np.argmax(likely)] if likely.any() else GRID[-1])


def _beta(values: np.ndarray) -> stats.rv_continuous:
    from scipy import stats  # imported here so that the method also runs on a machine without SciPy

    mean, variance = values.mean(), max(values.var(), 1e-4)
    scale = max(mean * (1 - mean) / variance - 1, 0.1)
    return stats.beta(mean * scale, (1 - mean) * scale)
