"""Paired differences, Holm's correction and tie groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from adaptive_bench.errors import UsageError
from adaptive_bench.leaderboard.paired import compare
from adaptive_bench.metric import Metric, metric_of
from adaptive_bench.tables.comparison import differences, holm, paired_difference
from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.tables.intervals import SHARE, UNBOUNDED

PAIRS = st.tuples(st.integers(1, 4), st.integers(1, 9)).flatmap(
    lambda shape: st.tuples(*[arrays(float, shape, elements=st.sampled_from([0.0, 0.25, 1.0]))] * 2)
)


def _scores(values: np.ndarray) -> DocumentScores:
    return DocumentScores(tuple(range(values.shape[0])), tuple(range(values.shape[1])), values)


@given(PAIRS)
def test_a_difference_is_antisymmetric_and_its_p_agrees_with_its_interval(pair) -> None:
    first, second = pair
    found, turned = paired_difference(first, second), paired_difference(second, first)
    assert found.difference == pytest.approx(-turned.difference, abs=1e-12)
    if found.p is None or found.low is None or found.high is None:
        assert first.size == 1
        return
    assert turned.p == pytest.approx(found.p)
    assert -1 <= found.low <= found.difference <= found.high <= 1
    if abs(found.p - 0.05) > 1e-6:
        assert (found.p < 0.05) == (not found.low <= 0 <= found.high)


def test_methods_that_answer_alike_do_not_differ_and_are_not_certainly_equal() -> None:
    answers = np.array([[0.0, 1.0, 1.0, 0.0, 1.0]] * 2)
    found = paired_difference(answers, answers)
    assert (found.difference, found.p) == (0.0, 1.0)
    assert found.low is not None and found.high is not None
    assert found.low < 0 < found.high


def test_shared_documents_sharpen_a_difference() -> None:
    random = np.random.default_rng(0)
    documents = random.normal(0, 5, (1, 50))
    first, second = (documents + shift + random.normal(0, 0.1, (3, 50)) for shift in (0.2, 0.0))
    found = paired_difference(first, second, UNBOUNDED)
    assert found.p is not None and found.p < 0.01
    assert found.low is not None and found.high is not None
    assert found.low < 0.2 < found.high


def test_a_single_pair_of_scores_has_no_interval() -> None:
    found = paired_difference([[0.5]], [[0.25]])
    assert (found.difference, found.low, found.p, found.levels) == (0.25, None, None, "none")


def test_tables_of_different_shape_are_refused() -> None:
    with pytest.raises(UsageError, match="same seeds and documents"):
        paired_difference(np.zeros((2, 3)), np.zeros((2, 4)))


def test_equal_methods_differ_in_five_percent() -> None:
    random = np.random.default_rng(2)
    right = 1 / (1 + np.exp(-random.normal(0, 1.5, (4000, 1, 80))))
    one, other = (
        (random.random((4000, 4, 80)) < np.clip(right + random.normal(0, 0.05, (4000, 4, 1)), 0, 1)) for _ in range(2)
    )
    p = differences(one.astype(float) - other, SHARE)[3]
    assert 0.02 <= np.mean(p < 0.05) <= 0.065


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(values: list[float]) -> None:
    corrected = holm(values)
    assert all(after >= before for before, after in zip(values, corrected, strict=True))
    assert all(one <= 1 for one in corrected)
    order = sorted(range(len(values)), key=values.__getitem__)
    assert [corrected[index] for index in order] == sorted(corrected)


def test_groups_are_anchored_at_their_leader() -> None:
    random = np.random.default_rng(0)
    documents = random.normal(0, 1, (1, 60))
    shifts = {"low": 0.0, "best": 3.0, "next": 2.99, "lower": -0.005}
    methods = {
        name: _scores(documents + shift + random.normal(0, 0.1, (5, 60)) + random.normal(0, 0.02, (5, 1)))
        for name, shift in shifts.items()
    }
    found = compare(methods, Metric("higher"))
    assert found.groups == {"best": 1, "next": 1, "low": 2, "lower": 2}
    assert found.order[0] == max(methods, key=lambda name: float(methods[name].values.mean()))
    turned = compare(methods, Metric("lower"))
    assert {name for name, group in turned.groups.items() if group == 1} == {"low", "lower"}


def test_one_method_leads_alone_and_none_leads_nothing() -> None:
    assert compare({"only": _scores(np.ones((2, 3)))}, metric_of("acc")).groups == {"only": 1}
    assert compare({}, metric_of("acc")).groups == {}


def test_equal_methods_are_not_ranked() -> None:
    random = np.random.default_rng(3)
    ranked = 0
    runs = 150
    for _ in range(runs):
        right = 1 / (1 + np.exp(-random.normal(0, 1.5, 60)))
        answers = random.random((5, 3, 60)) < np.clip(right + random.normal(0, 0.03, (5, 3, 1)), 0, 1)
        methods = {str(name): _scores(one.astype(float)) for name, one in enumerate(answers)}
        ranked += max(compare(methods, metric_of("acc")).groups.values()) > 1
    # 5 % of 150 is 7.5; 15 and more would come by chance in one of a hundred such tests.
    assert ranked < 15
