"""Saved time as an axis: read off a timing, never beyond it, never across settings."""

import pytest

from adaptive_bench.evaluation.sweep import sweep
from adaptive_bench.store.evaluation import Point
from adaptive_bench.store.timings import TimeCurve

CURVE = TimeCurve.of([(0.5, 0.4), (0.0, -0.1), (0.25, 0.1)])


def _point(tokens, score, time=None):
    return Point(tokens, score, {"tokens": tokens, "time": time})


@pytest.mark.parametrize(
    ("tokens", "time"), [(0.0, -0.1), (0.125, 0.0), (0.25, 0.1), (0.375, 0.25), (0.5, 0.4), (0.51, None), (-0.01, None)]
)
def test_a_curve_is_interpolated_and_not_extrapolated(tokens, time):
    assert CURVE.at(tokens) == (time if time is None else pytest.approx(time))


def test_points_with_the_same_saved_tokens_count_as_their_mean():
    assert TimeCurve.of([(0.0, 0.0), (0.0, 0.2)]).at(0.0) == pytest.approx(0.1)


def test_the_sweep_ends_where_the_timing_ends():
    def measure(asked):
        return _point(asked, 1.0, CURVE.at(asked))

    found = sweep(measure, lambda asked: asked, [0.2], "time", 1.0, 0.01)
    assert min(abs(point.saved["time"] - 0.2) for point in found.values()) < 0.01
    assert list(sweep(measure, lambda asked: asked, [0.6], "time", 1.0, 0.01)) == [0.6]
