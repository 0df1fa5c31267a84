"""Scores of single documents at a matched saving."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.document_scores import DocumentScores, matched_scores
from adaptive_bench.evaluation.matching import Point, match


def _point(saving: float, scores: dict[int, float]) -> tuple[Point, dict[int, float]]:
    return Point(saving, float(np.mean(list(scores.values()))), saving, saving, saving), scores


POINTS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.2, 0.30000001, 0.4]), st.lists(st.sampled_from([0.0, 1.0]), min_size=4)),
    min_size=1,
    max_size=6,
).map(lambda drawn: [_point(saving, dict(enumerate(scores[:4]))) for saving, scores in drawn])


@given(POINTS, st.lists(st.floats(0, 0.4), min_size=1, max_size=4))
def test_the_mean_over_documents_is_the_matched_score(points, levels) -> None:
    matched = match([point for point, _ in points], levels, "net")
    for one, scores in zip(matched, matched_scores(points, levels, "net"), strict=True):
        if one.score is None:
            assert scores is None
        else:
            assert scores is not None
            assert np.mean(list(scores.values())) == pytest.approx(one.score, abs=1e-9)


def test_a_document_is_mixed_as_the_level_lies_between_its_neighbours() -> None:
    points = [_point(0.0, {0: 1.0, 1: 1.0}), _point(0.2, {0: 0.0, 1: 1.0}), _point(0.4, {0: 0.0, 1: 0.0})]
    assert matched_scores(points, (0.05, 0.2, 0.5), "net") == [pytest.approx({0: 0.75, 1: 1.0}), {0: 0.0, 1: 1.0}, None]


def test_points_that_are_mixed_count_with_the_documents_they_share() -> None:
    points = [_point(0.0, {0: 1.0, 1: 1.0}), _point(0.2, {1: 0.0, 2: 1.0})]
    assert matched_scores(points, (0.1,), "net") == [{1: 0.5}]
    with pytest.raises(UsageError, match="no document in common"):
        matched_scores([_point(0.0, {0: 1.0}), _point(0.2, {1: 1.0})], (0.1,), "net")


def test_seeds_count_with_the_documents_all_of_them_answered() -> None:
    scores = DocumentScores.of({3: {0: 0.1, 2: 0.2, 5: 0.3}, 7: {2: 0.4, 5: 0.5}})
    assert (scores.seeds, scores.documents, scores.left_out) == ((3, 7), (2, 5), 1)
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
