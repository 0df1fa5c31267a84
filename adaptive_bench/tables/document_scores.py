"""Computes what single documents score at a matched saving, and holds it as a table of seeds by documents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from adaptive_bench.errors import UsageError
from adaptive_bench.store.measured import Documents, Floats, MeasuredPoint

_BITS = "bits_per_byte"
_EXPONENTIALS = ("byte_perplexity", "word_perplexity", "perplexity")  # cannot be split into parts of documents
_SAME = 1e-6  # largest difference between a metric and the mean of its documents that counts as none
_ROUNDING = 1e-9  # the same for large metrics, as a share of the metric
ByDocument = Mapping[int, float]  # document index to its score


@dataclass(frozen=True)
class DocumentScores:
    """The scores of every seed of a method on every document.

    Attributes:
        seeds: The S seeds.
        documents: Indices of the D documents that all seeds answered, rising.
        values: The scores, [S, D].
    """

    seeds: tuple[int, ...]
    documents: tuple[int, ...]
    values: Floats

    @classmethod
    def of(cls, by_seed: Mapping[int, ByDocument]) -> DocumentScores:
        """Make a table of the scores by document of each seed.

        Raises:
            UsageError: There is no seed, or no document that all seeds answered.
        """
        answered = [set(scores) for scores in by_seed.values()]
        common = sorted(set.intersection(*answered)) if answered else []
        if not common:
            raise UsageError(
                f"Seeds are compared on the documents that all of them answered, and the {len(by_seed)} seed(s) "
                f"{list(by_seed)} have none in common. Evaluate them on the same documents (the same --limit)."
            )
        values = np.array([[scores[document] for document in common] for scores in by_seed.values()], dtype=float)
        return cls(tuple(by_seed), tuple(common), values)

    def shared(self, other: DocumentScores) -> tuple[DocumentScores, DocumentScores]:
        """Return both tables, reduced to the seeds and documents that both have.

        Raises:
            UsageError: They have no seed or no document in common.
        """
        seeds = [seed for seed in self.seeds if seed in other.seeds]
        documents = sorted(set(self.documents) & set(other.documents))
        if not seeds or not documents:
            raise UsageError(
                f"Methods are compared on seeds and documents that both have, got seeds {list(self.seeds)} and "
                f"{list(other.seeds)} with {len(documents)} document(s) in common. Evaluate both with the same --seeds "
                f"and --limit."
            )
        return self._only(seeds, documents), other._only(seeds, documents)

    def _only(self, seeds: Sequence[int], documents: Sequence[int]) -> DocumentScores:
        rows = [self.seeds.index(seed) for seed in seeds]
        columns = np.searchsorted(self.documents, documents)  # both are rising
        return DocumentScores(tuple(seeds), tuple(documents), self.values[rows][:, columns])


def answers_by_seed(metric: str, measured: Mapping[int, Sequence[MeasuredPoint]]) -> dict[int, Floats]:
    """Return by seed the scores [P, D] of its documents at its measured points. The result is empty if a point has no
    documents, if documents differ between points or seeds, or if the metric is no mean over documents: then intervals
    can rest on seeds alone.
    """
    found: dict[int, Floats] = {}
    asked: set[tuple[int, ...]] = set()
    for seed, done in measured.items():
        if not done:
            continue
        points = [document_values(metric, one.documents) for one in done]
        asked |= {tuple(sorted(point)) for point in points}
        # `asked` grows over seeds, so this compares all points of all seeds.
        if len(asked) != 1 or not points[0]:
            return {}
        found[seed] = np.array([[point[doc] for doc in sorted(point)] for point in points])
        # The metric need not be the mean of its documents (BLEU): then their spread is not that of the metric.
        means = zip(found[seed].mean(axis=1).tolist(), [one.scores[metric] for one in done], strict=True)
        if not all(abs(mean - score) <= _SAME + _ROUNDING * abs(score) for mean, score in means):
            return {}
    return found


def is_pooled(metric: str) -> bool:
    """Whether a metric (an lm-eval key) is computed over all documents at once, so that the value of a document depends
    on the other documents.
    """
    return metric.split(",")[0] in (_BITS, *_EXPONENTIALS)


def document_values(metric: str, found: Documents) -> dict[int, float]:
    """Return a value for each document such that the metric is their mean and their spread is that of the metric; empty
    if the documents do not tell, and for perplexities.

    If the metric is a ratio of sums, R = sum of t / sum of w, the value of a document is R + (t - R w) / mean of w, the
    linearised ratio (Cochran, Sampling Techniques, 1977, chapter 6). It says how the metric moves when the document is
    left out, and is no score of the document alone. t are the bits lost and w the bytes of the document's text, as
    lm-eval counts them.

    Args:
        metric: lm-eval key such as `bits_per_byte,none`.
    """
    if not is_pooled(metric):
        scores = found.scores.get(metric, np.array([]))
        # Not strict: perhaps no document has this metric. NaN is not equal to itself, so documents without a score go.
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
