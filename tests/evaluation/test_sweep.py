"""The dial is solved for each level: it is met in few measurements wherever a dial can meet it, and the walk ends."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.evaluation.sweep import PROBES, REFINEMENTS, probed, sweep

CLOSE = 0.01
LEVELS = st.sampled_from([0.05, 0.1, 1 / 6, 0.25, 1 / 3])


class Response(NamedTuple):
    """A rising curve: `gain * asked ** power - cost`, as of a gate that itself costs something."""

    power: float
    gain: float
    cost: float

    def __call__(self, asked):
        return self.gain * asked**self.power - self.cost


responses = st.builds(Response, st.floats(0.6, 2.0), st.floats(0.6, 1.1), st.floats(0, 0.2))


def measured(saved, held_out, *levels, end=1.0, closeness=CLOSE):
    """What was saved by what was asked for, and what was looked at on held-out text."""
    probes: list[float] = []

    def probe(asked):
        probes.append(asked)
        return held_out(asked)

    found = sweep(saved, probe, levels, end, closeness)
    assert all(0 <= asked <= end for asked in (*found, *probes))
    return found, probes


@given(responses, st.floats(0.85, 1.2), st.floats(0.8, 1.25), st.floats(0.8, 1.25), LEVELS, st.sampled_from([0.3, 1.0]))
def test_a_level_is_met_or_the_dial_ends(saved, power, gain, cost, level, end):
    """Though on held-out text the dial does something else."""
    held_out = Response(saved.power * power, saved.gain * gain, saved.cost * cost)
    found, probes = measured(saved, held_out, level, end=end)
    assert len(found) <= 1 + REFINEMENTS and len(probes) <= PROBES
    assert min(abs(one - level) for one in found.values()) <= CLOSE or (max(found) == end and saved(end) < level)


@given(responses, LEVELS)
def test_where_held_out_text_is_like_the_task_one_measurement_is_enough(saved, level):
    if abs(saved(probed(saved, level, 1.0, CLOSE / 4).nearest) - level) <= CLOSE:
        assert len(measured(saved, saved, level)[0]) == 1


@given(
    st.lists(st.floats(-1, 1), min_size=11, max_size=11), st.lists(st.floats(-1, 1), min_size=11, max_size=11), LEVELS
)
def test_it_ends_whatever_is_measured(saved, held_out, level):
    found, probes = measured(lambda asked: saved[round(10 * asked)], lambda asked: held_out[round(10 * asked)], level)
    assert len(found) <= 1 + REFINEMENTS and len(probes) <= PROBES


@given(responses, responses)
def test_a_walk_is_the_same_each_time(saved, held_out):
    """What is on disk is found again by it."""
    assert measured(saved, held_out, 0.0, 0.15, 0.3) == measured(saved, held_out, 0.0, 0.15, 0.3)


def test_nothing_saved_is_the_dial_at_nothing_whatever_that_saves():
    assert measured(lambda asked: asked - 0.1, lambda asked: asked, 0.0) == ({0.0: -0.1}, [])


def test_a_dial_that_cannot_move_gets_one_point():
    assert measured(lambda asked: 0.0, lambda asked: 0.0, 0.0, 0.15, 0.3, end=0.0) == ({0.0: 0.0}, [])


def test_a_saving_that_is_not_known_is_asked_for_once():
    found = sweep(lambda _: None, lambda asked: asked, [0.6], 1.0, CLOSE)
    assert list(found) == [0.6]


def test_without_held_out_text_the_level_is_asked_for_as_it_is():
    found, _ = measured(lambda asked: asked, lambda _: None, 0.15, 0.25)
    assert list(found) == [0.15, 0.25]


@given(st.integers(2, 40), LEVELS)
def test_a_number_of_layers_is_the_nearest_one(layers, level):
    """A dial with few positions has none in between, and is not asked again and again."""

    def saved(asked):
        return round(asked * layers) / layers

    found, _ = measured(saved, saved, level)
    assert min(abs(one - level) for one in found.values()) == pytest.approx(
        min(abs(number / layers - level) for number in range(layers + 1))
    )
    assert len(found) == 1


def test_a_task_on_which_the_saving_is_not_known_is_measured_once():
    """It has no such phase, or the method was not timed so far."""
    found = sweep(lambda _: None, lambda asked: asked, (0.15,), 1.0, CLOSE)
    assert list(found) == [0.15]
