"""Variances between seeds, drawn towards what methods have in common."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.tables.seed_variance import MOST_DEGREES, Prior, SeedVariances


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
