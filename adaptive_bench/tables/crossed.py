"""Variance of a mean over two crossed levels: every seed answers every document.

score[s, d] = mean + seed[s] + document[d] + interaction[s, d]. The variance of the mean over S seeds and D documents is
var_seed / S + var_document / D + var_interaction / (S D), estimated without bias from the mean squares of the table
(Searle, Casella, McCulloch, Variance Components, 1992, chapter 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adaptive_bench.store.measured import Floats as Floats

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
        weight = share * (1 + threshold) / (share + threshold)
        inverse = weight / (seeds - 1) + (1 - weight) * inverse
    return np.divide(1.0, inverse, out=np.full_like(inverse, np.inf), where=inverse > 0)
