"""Saved time as an axis: read off a timing, never beyond it, never across settings."""

import pytest

from adaptive_bench.evaluation.sweep import sweep
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluations import Evaluation, Point
from adaptive_bench.store.timings import TimeCurve
from adaptive_bench.tables.matching import match
from adaptive_bench.tables.rows import table_rows

METRIC = "exact_match,strict-match"
CURVE = TimeCurve.of([(0.5, 0.4), (0.0, -0.1), (0.25, 0.1)])


def _evaluation(score, tokens):
    savings = {"tokens": tokens, "core": tokens, "net": tokens, "executed": tokens}
    return Evaluation("nano_math", tokens, {METRIC: score}, 100, savings, {"saved": savings}, 2.0, 300, 100, 8, 0, 1234)


def _point(tokens, score, time=None):
    return Point(tokens, score, {"tokens": tokens, "time": time})


@pytest.mark.parametrize(
    ("tokens", "time"), [(0.0, -0.1), (0.125, 0.0), (0.25, 0.1), (0.375, 0.25), (0.5, 0.4), (0.51, None), (-0.01, None)]
)
def test_a_curve_is_interpolated_and_not_extrapolated(tokens, time):
    assert CURVE.at(tokens) == (time if time is None else pytest.approx(time))


def test_points_with_the_same_saved_tokens_count_as_their_mean():
    assert TimeCurve.of([(0.0, 0.0), (0.0, 0.2)]).at(0.0) == pytest.approx(0.1)


def test_rows_by_time_stand_apart_for_each_setting_and_name_it():
    measured = {1: [_evaluation(1.0, 0.0), _evaluation(0.5, 0.25), _evaluation(0.0, 0.6)]}
    slower = TimeCurve.of([(0.0, -0.3), (0.5, 0.05)])
    rows = table_rows(
        MethodSpec("mod"), "t", [METRIC], measured, (0.0, 0.1, 0.2), {"batch 1": CURVE, "batch 8": slower}
    )
    timed = {(row.timing, row.level): row for row in rows if row.axis == "time"}
    assert len(timed) == 6
    assert timed["batch 1", 0.0].score == pytest.approx(0.75)
    assert timed["batch 1", 0.1].score == pytest.approx(0.5)
    assert timed["batch 1", 0.1].saved_tokens == pytest.approx(0.25)
    assert timed["batch 1", 0.2].status == "outside", "the last evaluated point lies beyond the timing"
    assert timed["batch 8", 0.1].status == "outside"
    assert all(row.timing is None for row in rows if row.axis != "time")


def test_milliseconds_stand_beside_the_share_where_the_timing_knows_the_plain_model():
    measured = {1: [_evaluation(1.0, 0.0), _evaluation(0.5, 0.25)], 2: [_evaluation(1.0, 0.0), _evaluation(0.5, 0.5)]}
    curves = {"batch 1": TimeCurve.of([(0.0, 0.0), (0.5, 0.4)], plain_ms=5.0), "batch 8": CURVE}
    rows = table_rows(MethodSpec("mod"), "t", [METRIC], measured, (0.0, 0.1, 0.9), curves)
    ms = {(row.timing, row.level): row.ms_per_token for row in rows}
    assert ms["batch 1", 0.0] == pytest.approx(5.0) and ms["batch 1", 0.1] == pytest.approx(4.5)
    assert ms["batch 1", 0.9] is None, "a level that was not reached costs nothing that is known"
    assert ms["batch 8", 0.1] is None and {found for (setting, _), found in ms.items() if setting is None} == {None}


@pytest.mark.parametrize(("time", "status"), [(-0.03, "outside"), (-0.02, "ok"), (0.01, "ok"), (0.03, "outside")])
def test_a_method_without_a_dial_saves_no_time_within_the_noise(time, status):
    assert match([_point(0, 0.9, time)], [0.0], "time")[0].status == status


def test_the_sweep_ends_where_the_timing_ends():
    def measure(asked):
        return _point(asked, 1.0, CURVE.at(asked))

    found = sweep(measure, lambda asked: asked, [0.2], "time", 1.0, 0.01)
    assert min(abs(point.saved["time"] - 0.2) for point in found.values()) < 0.01
    assert list(sweep(measure, lambda asked: asked, [0.6], "time", 1.0, 0.01)) == [0.6]
