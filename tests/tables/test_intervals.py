"""Intervals over seeds and documents: inside the range, honest at its ends, and covering on simulated data."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binomtest
from scipy.stats import t as student_t

from adaptive_bench.errors import UsageError
from adaptive_bench.tables.intervals import SHARE, UNBOUNDED, Crossed, interval, limits

TABLES = st.tuples(st.integers(1, 5), st.integers(1, 9)).flatmap(
    lambda shape: arrays(float, shape, elements=st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)))
)


@given(TABLES)
def test_an_interval_holds_its_mean_and_stays_in_the_range(table):
    found = interval(table)
    if table.size == 1:
        assert (found.low, found.high, found.levels) == (None, None, "none")
        return
    assert 0 <= found.low <= found.mean <= found.high <= 1
    assert found.high > found.low  # equal scores are not certain


@given(TABLES)
def test_right_and_wrong_are_mirror_images(table):
    found, mirrored = interval(table), interval(1 - table)
    if found.low is not None and found.high is not None:
        assert (mirrored.low, mirrored.high) == pytest.approx((1 - found.high, 1 - found.low), abs=1e-9)


@given(TABLES)
def test_the_unit_of_a_bounded_score_does_not_matter(table):
    found, scaled = interval(table), interval(100 * table, (0, 100))
    if found.low is not None and found.high is not None:
        assert (scaled.low, scaled.high) == pytest.approx((100 * found.low, 100 * found.high), abs=1e-6)


@pytest.mark.parametrize("documents", [8, 50, 500])
@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_all_wrong_has_wilsons_interval_of_the_documents(seeds, documents):
    found = interval(np.zeros((seeds, documents)))
    expected = binomtest(0, documents).proportion_ci(method="wilson")
    assert (found.low, found.high) == (0.0, pytest.approx(expected.high))


def test_one_seed_of_many_documents_is_close_to_wilsons_interval():
    found = interval(np.array([[1.0] * 300 + [0.0] * 700]))
    expected = binomtest(300, 1000).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=2e-4)
    assert (found.levels, found.seed_error, found.seeds, found.documents) == ("documents", None, 1, 1000)


def test_a_score_without_bounds_has_a_t_interval():
    found = interval([[1.0, 2.0, 4.0, 7.0]], UNBOUNDED)
    half = student_t.ppf(0.975, 3) * np.std([1, 2, 4, 7], ddof=1) / 2
    assert (found.low, found.high) == pytest.approx((3.5 - half, 3.5 + half))


def test_a_score_with_one_bound_is_cut_there():
    assert interval([[0.1, 3.0]], (0.0, math.inf)).low == 0.0


def test_both_levels_count():
    random = np.random.default_rng(0)
    documents = random.normal(0, 1, (1, 100))
    same, varied = documents + np.zeros((5, 1)), documents + random.normal(0, 1, (5, 1))
    few, many = interval(same, UNBOUNDED), interval(varied, UNBOUNDED)
    assert few.seed_error == pytest.approx(0.0, abs=1e-9)
    assert few.document_error == pytest.approx(0.1, rel=0.2)
    assert many.document_error == pytest.approx(few.document_error)
    assert many.seed_error is not None and many.seed_error > 0.2
    assert many.levels == "seeds and documents"


def test_a_score_that_is_no_mean_over_documents_has_an_interval_over_seeds():
    found = interval([[20.0], [22.0], [24.0]], (0, 100))
    assert (found.levels, found.document_error) == ("seeds", None)
    assert found.low < 20 < 24 < found.high


@pytest.mark.parametrize(
    ("scores", "bounds", "said"),
    [
        ([0.5, 0.6], SHARE, "shape"),
        (np.zeros((2, 0)), SHARE, "shape"),
        ([[0.5, math.nan]], SHARE, "finite"),
        ([[0.5, 1.5]], SHARE, "bounds"),
    ],
)
def test_what_is_no_table_of_scores_is_refused(scores, bounds, said):
    with pytest.raises(UsageError, match=said):
        interval(scores, bounds)


def _answers(random, tables, seeds, documents, right, of_seed, of_document):
    """Simulated right-or-wrong answers; documents are easy or hard, seeds good or bad, around a mean of `right`."""
    spread = np.hypot(of_seed, of_document)
    # Logistic-normal: the share right over all seeds and documents, solved for by bisection on a grid of the normal.
    normal = spread * np.sqrt(2) * np.polynomial.hermite.hermgauss(40)[0]
    weights = np.polynomial.hermite.hermgauss(40)[1] / np.sqrt(np.pi)
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if weights @ (1 / (1 + np.exp(-middle - normal))) < right else (low, middle)
    logit = low + random.normal(0, of_seed, (tables, seeds, 1)) + random.normal(0, of_document, (tables, 1, documents))
    return (random.random((tables, seeds, documents)) < 1 / (1 + np.exp(-logit))).astype(float)


@pytest.mark.parametrize(
    ("seeds", "documents", "right", "of_seed"), [(3, 100, 0.5, 0.3), (5, 100, 0.1, 0.3), (10, 60, 0.9, 0.0)]
)
def test_intervals_cover_simulated_answers(seeds, documents, right, of_seed):
    tables = _answers(np.random.default_rng(1), 2000, seeds, documents, right, of_seed, 1.5)
    low, high = limits(Crossed.of(tables), seeds, documents)
    covered = float(np.mean((low <= right) & (right <= high)))
    assert 0.93 <= covered <= 0.985
