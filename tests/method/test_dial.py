"""Dials: schedules, what a dial claims to save, and how one that is no share is solved for."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.method import annealed
from adaptive_bench.method.dial import NARROWEST, TOLERANCE, DialSpec, DialTable, asked_saving

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


def solved(table, curve, saving):
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


LAYERS = 4  # of the tiny Llama


@pytest.mark.parametrize(
    ("spec", "dial", "claimed"),
    [
        ("dense", 0.0, 0.0),
        ("gateskip", 0.8, 0.2),
        ("gateskip[skip_modules=mlp]", 0.8, 0.1),
        ("gateskip[stride=2]@paper", 0.6, 0.2),
        ("mod", 0.6, 0.2),
        ("mod[every=1]@paper", 0.6, 0.4),
        ("random_skip", 0.37, 0.37),
        ("random_skip", 1.0, 1.0),
        ("position_skip", 0.37, 0.37),
        *(("static_depth", number, number / LAYERS) for number in range(LAYERS + 1)),
        *(("layerskip", exit_layer, 1 - exit_layer / LAYERS) for exit_layer in range(1, LAYERS + 1)),
    ],
)
def test_a_dial_that_is_a_share_claims_it(spec, dial, claimed, shared_model):
    model = shared_model(spec)
    model.dial = dial
    assert model.method.claimed_saving == pytest.approx(claimed, abs=1e-9)


@pytest.mark.parametrize("spec", ["calm", "free", "skiplayer", "router_tuned_mod"])
def test_a_solved_dial_claims_what_was_measured_at_it(spec, shared_model):
    model = shared_model(spec)
    method = model.method
    assert method.claimed_saving == 0.0
    for saving in (0.1, 0.3):
        model.dial = method.dial_for(saving)
        assert method.claimed_saving == method.dial_table.nearest(min(saving, method.max_saved_tokens))[1]


def test_a_dial_that_was_never_solved_claims_nothing(make_backbone):
    from adaptive_bench.model import AdaptiveModel

    model = AdaptiveModel.build(make_backbone("llama"), "calm")
    assert model.method.claimed_saving == 0.0
    model.dial = 0.5
    assert model.method.claimed_saving is None


@given(st.floats(0, 1), st.floats(0.05, 1), st.floats(-3, 3).filter(lambda slope: abs(slope) > 0.01), st.floats(-1, 1))
def test_a_continuous_dial_gives_back_what_it_was_asked_for(share, maximum, slope, start):
    saving = share * maximum
    assert asked_saving(lambda s: start + slope * s, start + slope * saving, maximum) == pytest.approx(saving, abs=1e-9)


@given(st.integers(1, 64), st.data())
def test_a_dial_in_steps_gives_the_middle_of_a_step_and_its_ends(steps, data):
    number = data.draw(st.integers(0, steps))
    assert asked_saving(lambda saving: round(saving * steps), number, 1.0) == pytest.approx(number / steps, abs=1e-9)


@given(st.floats(0, 1), st.floats(-5, 5), st.floats(0.1, 5), st.booleans())
def test_travel_is_the_way_back_of_at(travel, low, width, down):
    dial = DialSpec("d", low, low + width, low + width if down else low)
    assert dial.travel(dial.at(travel)) == pytest.approx(travel, abs=1e-6)


def test_a_table_is_read_between_its_points_and_not_beyond():
    table = DialTable()
    table.measured |= {0.5: 0.2, 0.8: 0.4}
    assert [table.saving_at(travel) for travel in (0.0, 0.5, 0.8)] == [0.0, 0.2, 0.4]
    assert table.saving_at(0.65) == pytest.approx(0.3) and table.saving_at(0.81) is None


def test_directions_and_single_steps():
    assert annealed(0.0, 0.4, 4, 11) == pytest.approx(0.4 * 3 / 7)
    assert [annealed(1.0, 0.5, step, 1) for step in (1, 2)] == [1.0, 0.5]
    assert [annealed(1.0, 0.5, step, 2) for step in (1, 2)] == [1.0, 0.5]
