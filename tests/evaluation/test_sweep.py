"""The sweep reaches the levels on any axis, adds few points and always stops."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.evaluation.sweep import (
    CLOSER_POINTS,
    EXTRA_POINTS,
    closer_saving,
    first_savings,
    next_saving,
    sweep,
)
from adaptive_bench.store.evaluations import Point

LEVELS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25)


@dataclass(frozen=True)
class _Method:
    max_saving: float


@dataclass(frozen=True)
class _Recipe:
    grid: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3)
    closeness: float | None = None


def _point(saving: float, overhead: float = 0.0) -> Point:
    saved = {"tokens": saving, "core": 0.9 * saving, "net": 0.9 * saving - overhead, "decode_net": saving / 2}
    return Point(saving, 1 - saving, saved)


def _flat(saving: float, value: float) -> Point:
    return Point(saving, 0.0, dict.fromkeys(("tokens", "core", "net", "prefill_net", "decode_tokens"), value))


def test_the_first_grid_starts_at_nothing_and_ends_with_the_dial() -> None:
    assert first_savings(_Method(1.0), LEVELS, _Recipe()) == [0.0, 0.1, 0.2, 0.3]
    assert first_savings(_Method(0.25), LEVELS, _Recipe((0.1, 0.3, 0.4))) == [0.0, 0.1, 0.25]
    assert first_savings(_Method(0.0), LEVELS, _Recipe()) == [0.0]
    assert first_savings(_Method(1.0), LEVELS, _Recipe(())) == list(LEVELS)


def test_nothing_is_added_when_every_level_is_reached() -> None:
    assert list(sweep(_point, _Method(1.0), LEVELS, "tokens", _Recipe())) == [0.0, 0.1, 0.2, 0.3]


def test_a_costly_gate_is_followed_level_by_level_until_its_net_saving_reaches_the_highest() -> None:
    measured = sweep(lambda saving: _point(saving, overhead=0.17), _Method(1.0), LEVELS, "net", _Recipe())
    added = list(measured)[4:]
    assert added == pytest.approx([(level + 0.17) / 0.9 + 0.02 for level in (0.15, 0.2, 0.25)], abs=1e-4)
    assert max(point.at("net") for point in measured.values()) >= 0.25


def test_the_end_of_the_dial_is_tried_and_then_it_is_enough() -> None:
    asked = list(sweep(lambda saving: _point(saving, overhead=0.4), _Method(0.5), LEVELS, "net", _Recipe()))
    assert asked == [0.0, 0.1, 0.2, 0.3, pytest.approx(0.4644, abs=1e-4), 0.5]


def test_a_dial_that_moves_nothing_costs_one_more_point() -> None:
    asked = list(sweep(lambda saving: _flat(saving, 0.0), _Method(1.0), LEVELS, "net", _Recipe()))
    assert asked == [0.0, 0.1, 0.2, 0.3, 1.0]


def test_a_phase_is_followed_by_its_own_saving() -> None:
    measured = sweep(_point, _Method(1.0), LEVELS, "decode_net", _Recipe())
    assert len(measured) > 4 and measured[max(measured)].at("decode_net") >= 0.25


def test_a_task_without_the_phase_costs_no_points_beyond_the_grid() -> None:
    asked = list(
        sweep(
            lambda saving: Point(saving, 1.0, {"net": saving, "decode_net": None}),
            _Method(1.0),
            LEVELS,
            "decode_net",
            _Recipe(),
        )
    )
    assert asked == [0.0, 0.1, 0.2, 0.3]


def test_there_is_nothing_to_propose_without_points_or_levels() -> None:
    assert next_saving({}, LEVELS, "net", 1.0) is None
    assert next_saving({0.0: _point(0.0)}, (), "net", 1.0) is None


@given(
    st.lists(st.floats(-1, 1), min_size=11, max_size=11),
    st.floats(0, 1),
    st.sampled_from(["tokens", "core", "net", "prefill_net", "decode_tokens"]),
)
def test_the_sweep_stops_whatever_is_measured(savings: list[float], maximum: float, axis: str) -> None:
    def measure(saving: float) -> Point:
        value = savings[round(saving * 10)]
        return _flat(saving, value)

    measured = sweep(measure, _Method(maximum), LEVELS, axis, _Recipe())  # type: ignore[arg-type]
    assert len(measured) <= len(_Recipe().grid) + EXTRA_POINTS
    assert max(measured) <= maximum + 1e-6


@given(st.lists(st.floats(-1, 0.2), min_size=101, max_size=101))
def test_proposals_by_themselves_come_to_an_end(savings: list[float]) -> None:
    measured = {0.0: _point(0.0)}
    while (saving := next_saving(measured, LEVELS, "net", 1.0)) is not None:
        assert saving >= max(measured) + 0.0199 or saving == 1.0
        value = savings[round(saving * 100)]
        measured[saving] = _flat(saving, value)
    assert len(measured) <= 52


def test_levels_are_measured_where_they_are_judged_if_that_is_asked() -> None:
    recipe = _Recipe(closeness=0.02)
    measured = sweep(lambda saving: _point(saving, overhead=0.03), _Method(1.0), LEVELS, "net", recipe)
    savings = sorted(point.at("net") for point in measured.values())
    for level in LEVELS[1:]:
        assert any(level - 0.02 - 1e-6 <= saving <= level + 1e-6 for saving in savings), level
        assert any(level - 1e-6 <= saving <= level + 0.02 + 1e-6 for saving in savings), level


def test_what_another_sweep_was_asked_for_is_measured_too() -> None:
    asked: list[float] = []
    measured = sweep(
        lambda saving: asked.append(saving) or _point(saving), _Method(1.0), LEVELS, "tokens", _Recipe(), (0.07, 0.12)
    )
    plain = sweep(_point, _Method(1.0), LEVELS, "tokens", _Recipe())
    assert measured.keys() == plain.keys() | {0.07, 0.12} and len(asked) == len(measured)


def test_a_dial_with_few_positions_is_asked_once_in_between() -> None:
    asked = list(
        sweep(lambda saving: _point(round(saving * 8) / 8), _Method(1.0), (0.15,), "tokens", _Recipe((0.0, 0.3), 0.02))
    )
    assert asked[:2] == [0.0, 0.3] and len(asked) <= 4


def test_a_level_that_was_measured_or_not_reached_takes_no_more_points() -> None:
    measured = {saving: _point(saving) for saving in (0.1, 0.2)}
    assert closer_saving(measured, 0.1, "tokens", 0.02) is None
    assert closer_saving(measured, 0.25, "tokens", 0.02) is None
    assert closer_saving(measured, 0.15, "tokens", 0.02) == pytest.approx(0.14)
    assert closer_saving(measured | {0.14: _point(0.14)}, 0.15, "tokens", 0.02) == pytest.approx(0.16)


@given(st.lists(st.floats(-1, 1), min_size=11, max_size=11), st.floats(0.005, 0.3))
def test_coming_closer_ends_whatever_is_measured(savings: list[float], closeness: float) -> None:
    recipe = _Recipe(closeness=closeness)
    measured = sweep(lambda saving: _flat(saving, savings[round(saving * 10)]), _Method(1.0), LEVELS, "tokens", recipe)
    assert len(measured) <= len(recipe.grid) + EXTRA_POINTS + 2 * CLOSER_POINTS * len(LEVELS)
