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
from adaptive_bench.tables.seed_variance import MOST_DEGREES, Prior, SeedVariances

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


# The variance of a mean over two crossed levels.


def test_parts_of_the_variance_are_unbiased():
    random = np.random.default_rng(0)
    seeds, documents = 4, 6
    of_seed, of_document, of_both = 0.3, 0.5, 0.8
    tables = (
        random.normal(0, of_seed, (20_000, seeds, 1))
        + random.normal(0, of_document, (20_000, 1, documents))
        + random.normal(0, of_both, (20_000, seeds, documents))
    )
    true = of_seed**2 / seeds + of_document**2 / documents + of_both**2 / (seeds * documents)
    found = Crossed.of(tables)
    assert tables.mean(axis=(1, 2)).var() == pytest.approx(true, rel=0.03)
    # Kept from falling below its parts, the variance is a little too large rather than too small.
    assert true < found.variance.mean() < 1.1 * true
    strong = Crossed.of(
        tables * 0 + random.normal(0, 1, (20_000, seeds, 1)) + random.normal(0, 1, (20_000, 1, documents))
    )
    assert strong.seed_variance.mean() == pytest.approx(1 / seeds, rel=0.03)
    assert strong.document_variance.mean() == pytest.approx(1 / documents, rel=0.03)


def test_seeds_alone_are_a_plain_t_over_seeds():
    found = Crossed.of(np.array([[1.0], [2.0], [4.0]]))
    assert float(found.variance) == pytest.approx(np.var([1, 2, 4], ddof=1) / 3)
    assert float(found.degrees_of_freedom) == pytest.approx(2.0)


def test_few_seeds_that_vary_take_the_quantile_of_the_seeds():
    documents = np.zeros((2, 50))
    documents[1] = 1.0
    assert float(Crossed.of(documents).degrees_of_freedom) == pytest.approx(1.0)


def test_equal_seeds_leave_the_documents():
    found = Crossed.of(np.array([[0.0, 1.0, 0.0, 1.0]] * 3))
    assert float(found.seed_variance) == 0.0
    assert float(found.degrees_of_freedom) == pytest.approx(3.0)


def test_equal_scores_have_no_variance_and_a_normal_quantile():
    found = Crossed.of(np.ones((3, 5)))
    assert (float(found.variance), float(found.degrees_of_freedom)) == (0.0, np.inf)


# Variances between seeds, drawn towards what methods have in common.


def _known(variances, seeds=5, chance=0.0, slope=1.0):
    variances = np.array(variances, dtype=float)
    return SeedVariances(variances, *(np.full(len(variances), value) for value in (chance, slope, seeds)))


def test_methods_whose_seeds_differ_alike_agree_on_that_and_count_for_the_most():
    random = np.random.default_rng(0)
    estimates = 0.04 * random.chisquare(4, 400) / 4
    prior = Prior.of(_known(estimates))
    assert prior.spread == pytest.approx(0.04, rel=0.15)
    assert prior.degrees == MOST_DEGREES


def test_methods_that_differ_in_it_say_little_of_each_other():
    random = np.random.default_rng(0)
    apart = Prior.of(_known(np.repeat([0.0001, 0.0144], 200) * random.chisquare(4, 400) / 4))
    assert 0 < apart.degrees < 1


def test_one_method_that_collapses_moves_the_others_little():
    random = np.random.default_rng(1)
    steady = 0.01 * random.chisquare(4, 12) / 4
    alone, beside = (Prior.of(_known(values)) for values in (steady, [*steady, 1.0]))
    assert beside.spread < 2 * alone.spread


def test_the_moderated_variance_is_smyth_s_weighted_mean():
    found, degrees = Prior(0.5, 4.0).moderated(_known([1.0, 0.0], seeds=3, chance=0.1, slope=0.2))
    assert found == pytest.approx([(2 * 1.0 + 4 * 0.2) / 6, 4 * 0.2 / 6])
    assert degrees.tolist() == [6.0, 6.0]


def test_with_fewer_seeds_others_count_for_less():
    alike = [0.04] * 8
    assert [Prior.of(_known(alike, seeds)).degrees for seeds in (2, 3, 5)] == [1.5, 3.0, 4.0]
    assert Prior.of(_known(alike), most=50).degrees == 50


def test_a_single_seed_has_no_variance_and_two_methods_no_prior():
    assert Prior.of(_known([0.1, 0.2])) == Prior()
    known = _known([0.0, 0.0, 0.0], seeds=1)
    assert Prior.of(known) == Prior()
    assert [part.tolist() for part in Prior().moderated(known)] == [[0.0] * 3] * 2


@given(st.lists(st.floats(1e-12, 1e6), min_size=3, max_size=20), st.integers(2, 10))
def test_what_is_moderated_lies_between_its_own_and_the_common_variance(values, seeds):
    known = _known(values, seeds)
    prior = Prior.of(known)
    found, degrees = prior.moderated(known)
    assert 0 <= prior.degrees <= MOST_DEGREES
    assert (degrees >= seeds - 1).all()
    low, high = np.minimum(values, prior.spread), np.maximum(values, prior.spread)
    assert ((low * (1 - 1e-9) <= found) & (found <= high * (1 + 1e-9))).all()
