"""Intervals over seeds and, for one seed, over documents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.evaluation.statistics import summarize, wilson


def test_two_or_more_seeds_have_a_t_interval() -> None:
    found = summarize([0.2, 0.4, 0.6], documents=100)
    assert (found.mean, found.deviation, found.seeds, found.interval) == (
        pytest.approx(0.4),
        pytest.approx(0.2),
        3,
        "t",
    )
    half = 4.302653 * 0.2 / 3**0.5  # quantile of Student's t with 2 degrees of freedom
    assert (found.low, found.high) == pytest.approx((0.4 - half, 0.4 + half), abs=1e-6)


def test_equal_seeds_have_an_interval_of_no_width() -> None:
    found = summarize([0.3, 0.3])
    assert found.low == found.mean == found.high


def test_one_seed_has_the_wilson_interval_of_its_documents() -> None:
    found = summarize([0.5], documents=100)
    assert (found.low, found.high) == pytest.approx((0.40383, 0.59617), abs=1e-5)
    assert (found.interval, found.deviation) == ("wilson", None)


def test_one_seed_of_something_that_is_no_share_has_no_interval() -> None:
    for found in (summarize([12.5], documents=100), summarize([0.5])):
        assert (found.low, found.high, found.interval) == (None, None, "none")


@given(st.floats(0, 1), st.integers(1, 10_000))
def test_the_wilson_interval_holds_the_share_and_stays_a_share(share: float, documents: int) -> None:
    low, high = wilson(share, documents)
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1
