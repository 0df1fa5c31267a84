"""A dial that is solved for is a function of the saving alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.method.dial import NARROWEST, TOLERANCE, DialTable

SAVINGS = st.floats(0, 1)
# What is saved along a dial: rising, in steps, ending early, and falling again on the way.
CURVES = st.sampled_from(
    [
        lambda travel: travel,
        lambda travel: travel**3,
        lambda travel: 0.6 * math.sqrt(travel),
        lambda travel: math.floor(6 * travel) / 6,
        lambda travel: 0.5 * travel - 0.2 * (0.45 < travel < 0.7),
        lambda travel: 0.4 * abs(math.sin(5 * travel)),
    ]
)


def solved(table: DialTable, curve, saving: float) -> tuple[float, float]:
    table.solve(saving, curve)
    return table.nearest(saving)


@given(CURVES, SAVINGS, st.lists(SAVINGS, max_size=8), st.lists(SAVINGS, max_size=8))
def test_what_was_solved_for_before_and_after_changes_nothing(curve, saving, before, after):
    alone, among = solved(DialTable(), curve, saving), DialTable()
    for other in before:
        among.solve(other, curve)
    assert solved(among, curve, saving) == alone
    for other in after:
        among.solve(other, curve)
    assert among.nearest(saving) == alone


@given(SAVINGS, st.floats(0.5, 5), st.floats(0.1, 1))
def test_a_dial_that_rises_without_steps_comes_as_close_as_it_reaches(saving, power, end):
    travel, realised = solved(DialTable(), lambda travel: end * travel**power, saving)
    assert abs(realised - min(saving, end)) <= TOLERANCE or saving > end
    assert realised == pytest.approx(end * travel**power)


def test_a_step_is_looked_at_until_it_is_narrow_and_not_longer():
    asked = []

    def curve(travel):
        asked.append(travel)
        return 0.3 * (travel > 1 / 3)

    assert solved(DialTable(), curve, 0.1)[1] == 0.0
    assert len(asked) == len(set(asked)) <= 2 - math.log2(NARROWEST)


def test_what_is_measured_is_measured_once():
    asked = []
    table = DialTable()
    for saving in (0.1, 0.4, 0.1):
        table.solve(saving, lambda travel: asked.append(travel) or travel)
    assert len(asked) == len(set(asked))


def test_a_saving_nobody_solved_for_gets_the_closest_that_is_known():
    table = DialTable()
    table.solve(0.5, lambda travel: travel)
    assert table.solve(0.2) is None and table.nearest(0.45) == (0.5, 0.5)
