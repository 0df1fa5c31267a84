"""Holds the scores of single documents at a matched saving, as a table of seeds by documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from adaptive_bench.errors import UsageError
from adaptive_bench.store.evaluation import Evaluation, Sample
from adaptive_bench.store.measured import Documents, Floats, MeasuredPoint
from adaptive_bench.tables.document_values import document_values

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
        places = {document: place for place, document in enumerate(self.documents)}
        columns = [places[document] for document in documents]
        return DocumentScores(tuple(seeds), tuple(documents), self.values[rows][:, columns])


def answers_by_seed(
    metric: str,
    evaluations: Mapping[int, Sequence[Evaluation | MeasuredPoint]],
    samples: Mapping[int, Sequence[Sequence[Sample] | Documents]],
) -> dict[int, Floats]:
    """Return by seed the scores [P, D] of its documents at its measured points. The result is empty if a point has no
    samples, if documents differ between points or seeds, or if the metric is no mean over documents: then intervals can
    rest on seeds alone.
    """
    found: dict[int, Floats] = {}
    asked: set[tuple[int, ...]] = set()
    for seed, done in evaluations.items():
        if not done:
            continue
        points = [document_values(metric, some) for some in samples.get(seed, ())]
        asked |= {tuple(sorted(point)) for point in points}
        if len(points) != len(done) or len(asked) != 1 or not points[0]:
            return {}
        found[seed] = np.array([[point[doc] for doc in sorted(point)] for point in points])
        means = zip(found[seed].mean(axis=1).tolist(), [one.scores[metric] for one in done], strict=True)
        if not all(abs(mean - score) <= _SAME + _ROUNDING * abs(score) for mean, score in means):
            return {}
    return found
