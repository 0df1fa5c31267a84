"""Measures how the scores of several methods vary over their training seeds and over the documents they share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from adaptive_bench.tables.crossed import Floats
from adaptive_bench.tables.intervals import Bounds
from adaptive_bench.tables.seed_variance import SeedVariances


@dataclass(frozen=True)
class Spread:
    """Mean scores of K methods on the same D documents with S seeds each, and their variances; see `Crossed`.

    Attributes:
        mean: [K], mean score of each method.
        seeds: Variances between seeds.
        documents: [K, K], covariances of the means over documents: var_document / D and var_interaction / (S D).
        chance: [K], var_interaction / (S D).
        shape: S and D.
        bounds: Smallest and largest value of a score.
    """

    mean: Floats
    seeds: SeedVariances
    documents: Floats
    chance: Floats
    shape: tuple[int, int]
    bounds: Bounds

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
            centred = by_document - mean[:, None]
            covariance = centred @ centred.T / ((documents - 1) * documents)
        if seeds > 1 and documents > 1:
            rest = scores - by_seed[:, :, None] - by_document[:, None, :] + mean[:, None, None]
            chance = (rest**2).sum(axis=(1, 2)) / ((seeds - 1) * (documents - 1) * seeds * documents)
        answers = documents if documents > 1 else seeds
        known = SeedVariances(between, chance * seeds, _slope(mean, answers, bounds), np.full(methods, seeds))
        return cls(mean, known, covariance, chance, (seeds, documents), bounds)

    @property
    def answers(self) -> int:
        """Number of answers behind a seed's score; the number of seeds if the documents are not known."""
        seeds, documents = self.shape
        return documents if documents > 1 else seeds


def _slope(mean: Floats, answers: int, bounds: Bounds) -> Floats:
    """Return the squared movement of a score when its logit moves by 1; 1 for a metric without two finite bounds."""
    width = bounds[1] - bounds[0]
    if not math.isfinite(width):
        return np.ones_like(mean)
    # Half an answer more on either side keeps the share off the ends, where the slope is 0 and seeds could not differ.
    share = ((mean - bounds[0]) / width * answers + 0.5) / (answers + 1)
    return np.asarray((share * (1 - share) * width) ** 2)
