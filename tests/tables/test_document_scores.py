"""Scores of single documents, by seed."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_bench.errors import UsageError
from adaptive_bench.store.evaluation import Sample
from adaptive_bench.store.measured import Documents, MeasuredPoint
from adaptive_bench.tables.document_scores import DocumentScores, answers_by_seed

METRIC = "acc,none"


def _point(score: float, *documents: tuple[int, float]) -> MeasuredPoint:
    samples = [Sample(doc, "", "", {}, {METRIC: one}, one) for doc, one in documents]
    return MeasuredPoint(0.0, 0.0, 1.0, Documents.of(samples), {METRIC: score}, {"net": 0.0}, {})


def test_answers_are_taken_point_by_point_in_the_order_of_documents() -> None:
    found = answers_by_seed(METRIC, {7: [_point(0.5, (3, 1.0), (1, 0.0)), _point(1.0, (1, 1.0), (3, 1.0))], 8: []})
    assert list(found) == [7]
    np.testing.assert_array_equal(found[7], [[0.0, 1.0], [1.0, 1.0]])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([], []),
        ([(1, 1.0), (3, 0.0)], []),
        ([(1, 1.0), (3, 1.0)], [(1, 1.0), (3, 1.0)]),  # not the mean
        ([(1, 1.0), (3, 0.0)], [(1, 1.0), (2, 0.0)]),  # other documents
    ],
)
def test_there_are_no_answers_where_they_do_not_make_up_the_scores(first, second) -> None:
    assert answers_by_seed(METRIC, {7: [_point(0.5, *first)], 8: [_point(0.5, *second)]}) == {}


def test_seeds_count_with_the_documents_all_of_them_answered() -> None:
    scores = DocumentScores.of({3: {0: 0.1, 2: 0.2, 5: 0.3}, 7: {2: 0.4, 5: 0.5}})
    assert (scores.seeds, scores.documents) == ((3, 7), (2, 5))
    np.testing.assert_array_equal(scores.values, [[0.2, 0.3], [0.4, 0.5]])
    for nothing in ({}, {1: {0: 1.0}, 2: {1: 1.0}}):
        with pytest.raises(UsageError, match="all of them answered"):
            DocumentScores.of(nothing)


def test_methods_share_seeds_and_documents() -> None:
    one = DocumentScores.of({1: {0: 0.0, 1: 0.1}, 2: {0: 0.2, 1: 0.3}})
    other = DocumentScores.of({2: {1: 0.5, 2: 0.6}, 1: {1: 0.7, 2: 0.8}})
    first, second = one.shared(other)
    assert first.seeds == second.seeds == (1, 2) and first.documents == second.documents == (1,)
    np.testing.assert_array_equal(first.values, [[0.1], [0.3]])
    np.testing.assert_array_equal(second.values, [[0.7], [0.5]])
    with pytest.raises(UsageError, match="both have"):
        one.shared(DocumentScores.of({9: {0: 1.0}}))
