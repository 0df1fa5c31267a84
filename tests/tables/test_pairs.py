"""Differences of two methods: MOVER's intervals, and p-values that agree with them."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adaptive_bench.tables.intervals import SHARE, UNBOUNDED
from adaptive_bench.tables.pairs import Pairs

# Newcombe, Statistics in Medicine 17 (1998), pages 873-890, Table II, method 10: right and asked of both, and limits.
NEWCOMBE = (
    (56, 70, 48, 80, 0.0524, 0.3339),
    (9, 10, 3, 10, 0.1705, 0.8090),
    (6, 7, 2, 7, 0.0582, 0.8062),
    (5, 56, 0, 29, -0.0381, 0.1926),
    (0, 10, 0, 20, -0.1611, 0.2775),
    (0, 10, 0, 10, -0.2775, 0.2775),
    (10, 10, 0, 20, 0.6791, 1.0000),
    (10, 10, 0, 10, 0.6075, 1.0000),
)
SHARES = st.floats(0, 1)
ERRORS = st.floats(1e-3, 0.02)


def _pair(one, other, error, error_other, correlation=0.0, degrees=np.inf, bounds=SHARE):
    parts = ([[one], [other]], [[error], [error_other]], [correlation], [degrees])
    return Pairs(*(np.array(part, dtype=float) for part in parts), bounds)


@st.composite
def comparisons(draw):
    """Two shares, their errors, their correlation (no more than the less variable mean allows, and than Fréchet's
    bound for shares of the same documents), degrees of freedom.
    """
    one, other, error, error_other = (draw(values) for values in (SHARES, SHARES, ERRORS, ERRORS))
    deviations = sorted(np.sqrt([one * (1 - one) * error, other * (1 - other) * error_other]))
    most = deviations[0] / deviations[1] if deviations[1] > 0 else 0.0
    least, greatest = sorted((one, other))
    most = min(most, np.sqrt(least * (1 - greatest) / (greatest * (1 - least)))) if least > 0 and greatest < 1 else 0.0
    return one, other, error, error_other, draw(st.floats(-0.5, 1)) * most, draw(st.floats(1, 200))


@pytest.mark.parametrize(("right", "asked", "right_other", "asked_other", "low", "high"), NEWCOMBE)
def test_independent_shares_have_newcombe_s_limits(right, asked, right_other, asked_other, low, high):
    pair = _pair(right / asked, right_other / asked_other, 1 / asked, 1 / asked_other)
    assert np.concatenate(pair.limits(np.array([0.05]))) == pytest.approx([low, high], abs=6e-5)


def test_what_correlates_differs_less_and_has_the_paired_formula():
    pair = _pair(0.9, 0.7, 1 / 50, 1 / 50, 0.5)
    alone = [_pair(share, share, 1 / 50, 1 / 50).limits(np.array([0.05]))[1][0] / np.sqrt(2) for share in (0.9, 0.7)]
    low, high = (end[0] for end in pair.limits(np.array([0.05])))
    below, above = pair._arms(np.array([1.959964]))
    expected = np.sqrt(below[0] ** 2 + above[1] ** 2 - below[0] * above[1])[0]
    assert low == pytest.approx(0.2 - expected, abs=1e-6)
    assert high - low < sum(alone) * 2


def test_scores_without_bounds_have_the_t_interval_of_their_difference():
    pair = _pair(1.5, 1.0, 0.03, 0.04, 0.25, 7, UNBOUNDED)
    half = 2.364624 * np.sqrt(0.03 + 0.04 - 2 * 0.25 * np.sqrt(0.03 * 0.04))
    assert np.concatenate(pair.limits(np.array([0.05]))) == pytest.approx([0.5 - half, 0.5 + half], abs=1e-6)


@given(comparisons(), st.floats(1e-6, 0.5))
def test_an_interval_excludes_0_exactly_where_p_is_below_its_error_rate(one, alpha):
    pair = _pair(*one)
    p = pair.p_values()[0]
    low, high = (end[0] for end in pair.limits(np.array([alpha])))
    assert -1 <= low <= one[0] - one[1] <= high <= 1
    assert 0 <= p <= 1
    if abs(p / alpha - 1) > 1e-6:
        assert (p < alpha) == (low > 0 or high < 0)


@given(comparisons(), st.floats(1e-6, 0.5))
def test_swapping_the_methods_turns_everything(one, alpha):
    first, second, error, error_other, *rest = one
    pair, turned = _pair(*one), _pair(second, first, error_other, error, *rest)
    alphas = np.array([alpha])
    assert turned.p_values() == pytest.approx(pair.p_values(), rel=1e-6)
    assert turned.limits(alphas)[0] == pytest.approx(-pair.limits(alphas)[1], abs=1e-12)


@given(comparisons())
@example((0.5, 0.5, 2**-6, 2**-6, 1.0, 1.0))  # no difference and no doubt of it
def test_more_confidence_is_a_wider_interval(one):
    pair = _pair(*one)
    ends = [pair.limits(np.array([alpha])) for alpha in (0.2, 0.05, 0.001)]
    assert all(wide[0] <= near[0] + 1e-12 and near[1] <= wide[1] + 1e-12 for near, wide in pairwise(ends))


def test_the_end_of_an_interval_is_its_estimate_only_at_the_end_of_the_range():
    low, high = _pair(0.997, 0.033, 1 / 500, 1 / 500).limits(np.array([0.05]))
    assert low[0] < 0.964 < high[0] < 1.0
    low, high = _pair(1.0, 0.0, 1 / 500, 1 / 500).limits(np.array([0.05]))
    assert low[0] < 1.0 == high[0]
