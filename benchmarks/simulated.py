"""Simulated scores: all seeds of a method answer the same documents, and logits are sums of normal parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
Floats = NDArray[np.float64]
DOCUMENT, BOTH = 1.5, 0.3  # standard deviations for boards, as in the world `usual`
COLLAPSED = 0.05


@dataclass(frozen=True)
class World:
    """Standard deviations in logits: between seeds, between documents, and of a seed on a document."""

    name: str
    seed: float
    document: float
    both: float

    @property
    def spread(self) -> float:
        """Standard deviation of a logit."""
        return float(np.sqrt(self.seed**2 + self.document**2 + self.both**2))

    def of(self, seeds: int) -> World:
        """The world for a number of seeds. With one seed there is no spread between seeds, since its interval is about
        the same trained model on other documents.
        """
        return self if seeds > 1 else replace(self, seed=0.0)


WORLDS = (
    World("alike", 0.0, 1.5, 0.0),
    World("usual", 0.2, 1.5, 0.3),
    World("seeds", 0.6, 1.5, 0.3),
    World("hard", 0.2, 3.0, 0.5),
    World("noise", 0.1, 0.5, 1.0),
)


def offset(mean: float, spread: float) -> float:
    """The logit at which the share of right answers is `mean` if a normal of this standard deviation is added."""
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        share = WEIGHTS @ (1 / (1 + np.exp(-middle - spread * NODES))) / WEIGHTS.sum()
        low, high = (middle, high) if share < mean else (low, middle)
    return low


def logits(
    random: np.random.Generator, world: World, shape: tuple[int, int, int], shared: Floats | float = 0.0
) -> Floats:
    """Sums [N, S, D] of the three parts; `shared`, if given, is the documents' part."""
    tables, seeds, documents = shape
    easy = random.normal(0, world.document, (tables, 1, documents)) if np.isscalar(shared) else shared
    return easy + random.normal(0, world.seed, (tables, seeds, 1)) + random.normal(0, world.both, shape)


def scores(
    random: np.random.Generator,
    means: Floats,
    spreads: Floats,
    seeds: int,
    documents: int,
    collapsing: float = 0.0,
) -> Floats:
    """Right-or-wrong scores [K, S, D] of K methods on the same documents.

    Args:
        means: [K], true means.
        spreads: [K], standard deviations between seeds, in logits.
        collapsing: Share of the seeds of every method that score `COLLAPSED` instead.
    """
    base = np.array([_base(float(mean), float(spread)) for mean, spread in zip(means, spreads, strict=True)])
    base = np.repeat(base[:, None, None], seeds, axis=1)
    base[random.random(base.shape) < collapsing] = _base(COLLAPSED, 0.0)
    shape = (len(means), seeds, documents)
    easy = random.normal(0, DOCUMENT, (1, 1, documents)) + random.normal(0, BOTH, shape)
    sums = base + easy + random.normal(0, 1, (len(means), seeds, 1)) * spreads[:, None, None]
    return (random.random(shape) < 1 / (1 + np.exp(-sums))).astype(float)


@cache
def _base(mean: float, spread: float) -> float:
    return offset(mean, float(np.sqrt(spread**2 + DOCUMENT**2 + BOTH**2)))
