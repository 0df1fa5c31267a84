"""Makes measured points ready for matching: with their savings by name, and the saved time read off a timing."""

from __future__ import annotations

from adaptive_bench.store.evaluation import Point
from adaptive_bench.store.measured import KNOWN, NAMES, Measurement
from adaptive_bench.store.timings import TimeCurve


def point_of(evaluation: Measurement, metric: str, curve: TimeCurve | None = None) -> Point:
    """Return one evaluation as a point; `curve` gives its saved time."""
    saved = {name: evaluation.saved(*known) for name, known in zip(NAMES, KNOWN, strict=True)}
    saved["time"] = saved_time(evaluation, curve)
    return Point(evaluation.dial, evaluation.scores[metric], saved, evaluation.time_s)


def saved_time(evaluation: Measurement, curve: TimeCurve | None) -> float | None:
    """Return the saved time; `None` without a timing, or if the timing does not cover the saved tokens."""
    tokens = evaluation.saved("tokens")
    return None if curve is None or tokens is None else curve.at(tokens)
