"""Scores of single documents at a matched saving, as a table of seeds by documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.crossed import Floats
from adaptive_bench.evaluation.matching import Axis, Point, match

ByDocument = Mapping[int, float]  # document index to its score


@dataclass(frozen=True)
class DocumentScores:
    """What every seed of a method scores on every document.

    Attributes:
        seeds: The seeds, S of them.
        documents: Indices of the documents that all seeds answered, D of them, rising.
        values: [S, D].
        left_out: Number of documents that some seeds answered and others did not.
    """

    seeds: tuple[int, ...]
    documents: tuple[int, ...]
    values: Floats
    left_out: int = 0

    @classmethod
    def of(cls, by_seed: Mapping[int, ByDocument]) -> DocumentScores:
        """From the scores by document of each seed.

        Raises:
            UsageError: No seed, or no document that all seeds answered.
        """
        answered = [set(scores) for scores in by_seed.values()]
        common = sorted(set.intersection(*answered)) if answered else []
        if not common:
            raise UsageError(
                f"Seeds are compared on the documents that all of them answered, and the {len(by_seed)} seed(s) "
                f"{list(by_seed)} have none in common. Evaluate them on the same documents (the same --limit)."
            )
        values = np.array([[scores[document] for document in common] for scores in by_seed.values()], dtype=float)
        return cls(tuple(by_seed), tuple(common), values, len(set.union(*answered)) - len(common))

    def shared(self, other: DocumentScores) -> tuple[DocumentScores, DocumentScores]:
        """Both with the seeds and documents that both have.

        Raises:
            UsageError: There is no such seed or document.
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
        return DocumentScores(tuple(seeds), tuple(documents), self.values[rows][:, columns], self.left_out)


def matched_scores(
    points: Sequence[tuple[Point, ByDocument]], levels: Sequence[float], axis: Axis
) -> list[dict[int, float] | None]:
    """Scores of one seed's documents at each level, `None` where the level was not reached.

    The score at a level is a mix of the measured points (see `match`), and every document's score is the same mix. For
    a metric that is a mean over documents, the mean of the result is the matched score.

    Args:
        points: The measured points, each with its scores by document.
        levels: The savings asked for.
        axis: The saving they are on.

    Raises:
        UsageError: The points to be mixed share no document.
    """
    known = [point for point, _ in points]
    # Matching is linear in the scores, so a point counts for as much as comes out where it alone has a score.
    alone = [[replace(point, score=float(point is one)) for point in known] for one in known]
    shares = [[matched.score for matched in match(some, levels, axis)] for some in alone]
    found: list[dict[int, float] | None] = []
    for position, level in enumerate(levels):
        mixed = [(share[position], scores) for share, (_, scores) in zip(shares, points, strict=True)]
        used = [(share, scores) for share, scores in mixed if share]
        found.append(_mix(used, level) if used else None)
    return found


def _mix(used: Sequence[tuple[float, ByDocument]], level: float) -> dict[int, float]:
    documents = sorted(set.intersection(*(set(scores) for _, scores in used)))
    if not documents:
        raise UsageError(
            f"A score at a saving of {level:g} lies between measured points, and those have no document in common. "
            f"Evaluate all dial values on the same documents (the same --limit)."
        )
    return {document: sum(share * scores[document] for share, scores in used) for document in documents}
