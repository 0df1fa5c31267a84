"""A level is answered by the measured point that is nearest to it, as it was measured."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.store.evaluation import COUNTED, MATCH_PHASES, Point, saving_name
from adaptive_bench.tables.matching import flaws, interpolated, meets, nearest

SHARES = st.floats(min_value=-0.5, max_value=1.0).map(lambda value: round(value, 4))
NAMES = [saving_name(axis, phase) for axis in COUNTED for phase in MATCH_PHASES] + ["claimed", "projected"]
# Older records, and phases without tokens, leave savings open.
SAVED = st.fixed_dictionaries({name: st.none() | SHARES for name in NAMES})
POINTS = st.lists(st.builds(Point, SHARES, st.floats(0, 1), SAVED), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("saving", "met"),
    [(0.15, True), (0.16, True), (0.14, True), (0.1601, False), (0.1399, False), (0.0, False)],
)
def test_a_level_is_met_within_a_point_of_saving(saving, met):
    assert meets(saving, 0.15) == met


@given(st.lists(st.none() | SHARES, max_size=8), SHARES)
def test_no_saving_is_nearer_than_the_one_that_answers_and_of_two_the_larger_one_does(savings, level) -> None:
    known = [saving for saving in savings if saving is not None]
    place = nearest(savings, level)
    if not known:
        assert place is None
        return
    assert place is not None
    chosen = savings[place]
    assert chosen is not None
    least = min(abs(saving - level) for saving in known)
    assert abs(chosen - level) == pytest.approx(least, abs=1e-9)
    assert chosen == max(saving for saving in known if abs(saving - level) <= least + 1e-9)
    assert place == savings.index(chosen)  # of equal ones the first


@given(POINTS, st.sampled_from(NAMES))
def test_points_that_do_not_know_a_saving_make_no_flaw_of_it(points, name):
    assert flaws(points, name) == flaws([point for point in points if point.on(name)], name)


def test_a_dial_that_moves_nothing_is_inert():
    flat = [Point(dial, 0.3, {"tokens": 0.0005 * dial}) for dial in (0.0, 0.1, 0.2)]
    assert flaws(flat, "tokens") == ("inert",)
    assert flaws(flat[:1], "tokens") == ()  # without a dial
    assert flaws([Point(0.0, 1, {"net": 0.0}), Point(1.0, 1, {"net": 0.02})], "net") == ()


def test_a_saving_that_goes_up_and_down_with_the_dial_is_told():
    points = [Point(dial, dial, {"core": saving}) for dial, saving in [(0.0, 0.0), (0.1, 0.3), (0.2, 0.1)]]
    assert flaws(points, "core") == ("non-monotone",)
    falling = [Point(dial, 0.0, {"core": 1 - dial}) for dial in (0.7, 0.8, 1.0)]
    assert flaws(falling, "core") == ()


def test_the_papers_tables_are_read_on_the_line_between_two_points():
    """By hand: .2 lies half way between .1 and .3, whose scores are .8 and .2; .25 three quarters of the way."""
    savings, scores = [0.0, 0.3, 0.1], np.array([1.0, 0.2, 0.8])
    assert interpolated(savings, scores, 0.2) == pytest.approx(0.5)
    assert interpolated(savings, scores, 0.25) == pytest.approx(0.35)
    both = interpolated(savings, np.array([[1.0, 4.0], [0.2, 2.0], [0.8, 3.0]]), 0.2)
    assert both is not None and both.tolist() == pytest.approx([0.5, 2.5])
    assert interpolated([0.1, 0.1, 0.2], np.array([0.4, 0.6, 0.0]), 0.1) == pytest.approx(0.5)  # their mean
    assert interpolated([None, 0.1], np.array([0.9, 0.5]), 0.1) == 0.5
    for outside in (-0.01, 0.301):
        assert interpolated(savings, scores, outside) is None
    assert interpolated([], np.empty(0), 0.1) is None


@pytest.mark.parametrize(("lowest", "there"), [(0.0, True), (0.005, True), (0.0051, False), (-0.001, True)])
def test_in_the_papers_tables_nothing_saved_is_next_to_nothing_saved(lowest: float, there: bool) -> None:
    assert (interpolated([lowest, 0.5], np.array([0.9, 0.1]), 0.0) is not None) == there
