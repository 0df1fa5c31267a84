"""Interpolation between measured points: exact, bounded, never beyond what was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.store.evaluations import COUNTED, MATCH_PHASES, Point, saving_name
from adaptive_bench.tables.matching import flaws, match

SHARES = st.floats(min_value=-0.5, max_value=1.0).map(lambda value: round(value, 4))
NAMES = [saving_name(axis, phase) for axis in COUNTED for phase in MATCH_PHASES] + ["claimed", "projected"]
SAVED = st.fixed_dictionaries(dict.fromkeys(NAMES, SHARES))
POINTS = st.lists(st.builds(Point, SHARES, st.floats(0, 1), SAVED), min_size=1, max_size=8)
# What older records and phases without tokens leave open.
GAPS = st.fixed_dictionaries({name: st.none() | SHARES for name in NAMES})
POINTS_WITH_GAPS = st.lists(st.builds(Point, SHARES, st.floats(0, 1), GAPS), min_size=1, max_size=8)


def _point(dial: float, score: float, tokens: float, core: float, net: float) -> Point:
    return Point(dial, score, {"tokens": tokens, "core": core, "net": net})


def _line(*pairs: tuple[float, float]) -> list[Point]:
    return [_point(x, y, x, x / 2, x - 0.2) for x, y in pairs]


def test_score_and_savings_are_interpolated_between_the_neighbours() -> None:
    (found,) = match(_line((0.0, 1.0), (0.1, 0.8), (0.3, 0.2)), [0.2], "tokens")
    assert (found.level, found.score) == pytest.approx((0.2, 0.5))
    assert found.saved == pytest.approx({"tokens": 0.2, "core": 0.1, "net": 0.0})
    assert found.status == "ok" and found.gap == pytest.approx(0.2)
    assert match(_line((0.0, 1.0), (0.2, 0.8), (0.3, 0.2)), [0.2], "tokens")[0].gap == 0


def test_the_saving_that_is_matched_on_is_the_level_itself() -> None:
    (found,) = match([_point(0.0, 1.0, 0.0, 0.0, -0.1), _point(0.1, 0.9, 0.1, 0.1, 0.07)], [0.0], "net")
    assert str(found.saved["net"]) == "0.0"


def test_nothing_is_extrapolated_even_when_the_level_is_very_near() -> None:
    points = _line((0.06, 1.0), (0.2499, 0.5))
    assert [one.status for one in match(points, [0.0, 0.0555, 0.1, 0.25], "tokens")] == [
        "outside",
        "outside",
        "ok",
        "outside",
    ]
    assert match(points, [0.25], "tokens")[0].score is None
    assert [one.status for one in match([], [0.0], "tokens")] == ["outside"]


@pytest.mark.parametrize(("lowest", "status"), [(0.0, "ok"), (0.005, "ok"), (0.0051, "outside"), (-0.001, "ok")])
def test_level_zero_is_answered_by_a_method_that_saves_next_to_nothing(lowest: float, status: str) -> None:
    found = match(_line((lowest, 0.9), (0.5, 0.1)), [0.0], "tokens")[0]
    assert found.status == status
    assert (found.score is None) == (status == "outside")


def test_points_with_the_same_saving_count_as_their_mean() -> None:
    assert match(_line((0.1, 0.4), (0.1, 0.6), (0.2, 0.0)), [0.1], "tokens")[0].score == pytest.approx(0.5)


def test_a_method_without_a_dial_answers_its_one_level() -> None:
    dense = [_point(0.0, 0.9, 0.0, 0.0, 0.0)]
    assert [(one.score, one.status) for one in match(dense, [0.0, 0.05], "net")] == [(0.9, "ok"), (None, "outside")]
    assert flaws(dense, "net") == ()


def test_a_dial_that_moves_nothing_is_inert() -> None:
    flat = [_point(dial, 0.3, 0.0, 0.0, 0.0) for dial in (0.0, 0.1, 0.2)]
    assert flaws(flat, "tokens") == ("inert",)
    assert [one.status for one in match(flat, [0.0, 0.1], "tokens")] == ["inert", "outside"]


def test_a_saving_that_goes_up_and_down_with_the_dial_is_told_but_still_matched() -> None:
    points = [_point(dial, dial, saving, saving, saving) for dial, saving in [(0.0, 0.0), (0.1, 0.3), (0.2, 0.1)]]
    assert flaws(points, "core") == ("non-monotone",)
    # Neighbours on the axis are (0.1 saved, score 0.2) and (0.3 saved, score 0.1).
    assert match(points, [0.2], "core")[0].score == pytest.approx(0.15)


def test_a_dial_that_saves_less_when_turned_up_is_fine() -> None:
    assert flaws([_point(dial, 0.0, 1 - dial, 1 - dial, 1 - dial) for dial in (0.7, 0.8, 1.0)], "tokens") == ()


def test_one_phase_is_matched_by_its_own_saving_and_the_others_come_along() -> None:
    points = [
        Point(0.0, 1.0, {"net": 0.0, "prefill_net": 0.0, "decode_net": -0.1, "claimed": 0.0}),
        Point(0.2, 0.5, {"net": 0.2, "prefill_net": 0.25, "decode_net": 0.1, "claimed": 0.2}),
    ]
    (found,) = match(points, [0.0], "decode_net")
    assert found.score == pytest.approx(0.75)
    assert found.saved == pytest.approx({"net": 0.1, "prefill_net": 0.125, "decode_net": 0.0, "claimed": 0.1})
    assert match(points, [0.2], "decode_net")[0].status == "outside"


def test_a_saving_that_one_neighbour_does_not_know_is_not_made_up() -> None:
    points = [Point(0.0, 1.0, {"net": 0.0, "claimed": None}), Point(0.2, 0.5, {"net": 0.2, "claimed": 0.2})]
    (found,) = match(points, [0.1], "net")
    assert found.score == 0.75 and set(found.saved) == {"net"}
    assert match(points, [0.1], "claimed")[0].status == "outside"


@given(POINTS, SHARES, st.sampled_from(NAMES))
def test_a_reached_level_lies_inside_the_measured_range_and_its_score_between_the_neighbours(
    points: list[Point], level: float, name: str
) -> None:
    found = match(points, [level], name)[0]
    savings = [point.at(name) for point in points]
    if level == 0 and 0 < min(savings) <= 0.005:
        return
    assert (found.score is not None) == (min(savings) <= level <= max(savings))
    if found.score is not None:
        assert found.saved[name] == pytest.approx(level, abs=1e-12)
        below = max(saving for saving in savings if saving <= level)
        above = min(saving for saving in savings if saving >= level)
        near = [point for point in points if point.at(name) in (below, above)]
        scores = [point.score for point in near]
        assert min(scores) - 1e-12 <= found.score <= max(scores) + 1e-12
        for other in NAMES:
            values = [point.at(other) for point in near]
            assert min(values) - 1e-12 <= found.saved[other] <= max(values) + 1e-12


@given(POINTS_WITH_GAPS, st.randoms(), st.lists(SHARES, max_size=4), st.sampled_from(NAMES))
def test_the_order_of_the_points_does_not_matter(
    points: list[Point], random: object, levels: list[float], name: str
) -> None:
    shuffled = list(points)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = match(shuffled, levels, name), match(points, levels, name)
    assert [(found.score, found.status) for found in one] == [(found.score, found.status) for found in other]


@given(POINTS_WITH_GAPS, st.lists(SHARES, max_size=4), st.sampled_from(NAMES))
def test_points_that_do_not_know_the_saving_do_not_count(points: list[Point], levels: list[float], name: str) -> None:
    known = [point for point in points if point.on(name)]
    assert match(points, levels, name) == match(known, levels, name)
    assert flaws(points, name) == flaws(known, name)


@given(POINTS, st.sampled_from(NAMES))
def test_a_measured_point_is_matched_exactly(points: list[Point], name: str) -> None:
    single = {point.at(name): point for point in points}
    for point in single.values():
        found = match(single.values(), [point.at(name)], name)[0]
        assert (found.score, found.saved) == (point.score, point.saved)
