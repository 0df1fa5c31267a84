"""Dial tables: which saving and score each dial value gave, as means over the seeds that measured it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from adaptive_bench.store.measured import Floats
from adaptive_bench.tables.rows import with_semantics


@dataclass(frozen=True)
class DialPoint:
    """One dial value of one seed.

    Attributes:
        dial: Dial value in the method's own unit.
        asked: Share of token-branches that it was asked to skip; `None` if the run does not say.
        saved: Savings by name (see `saving_name`).
        times: Share of time saved, by setting.
        scores: By metric, one value per document, [D].
        seconds: Seconds that the evaluation took, if known.
    """

    dial: float
    asked: float | None
    saved: Mapping[str, float]
    times: Mapping[str, float]
    scores: Mapping[str, Floats]
    seconds: float | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> DialPoint:
        """Make a point from its plain values in an `answers.json`."""
        # The scores are a text of 0 and 1, or a list of numbers.
        scores = {metric: np.array([float(one) for one in found]) for metric, found in values["scores"].items()}
        about = (float(values["dial"]), values.get("asked"), values["saved"], values.get("times", {}))
        return cls(*about, scores, values.get("seconds"))


@dataclass(frozen=True)
class DialTable:
    """The measured points of a method, trained towards one target, on a task.

    Attributes:
        method: The method's spec with its semantics.
        target: The saving it was trained towards, if there were several targets.
        seeds: Measured points by seed.
    """

    method: str
    task: str
    target: float | None
    seeds: Mapping[int, Sequence[DialPoint]]

    @property
    def name(self) -> str:
        """Name of the table that tells it apart from other tables of the method."""
        return self.method if self.target is None else f"{self.method} (trained for {self.target:.4g})"

    def lines(self, metric: str) -> list[DialLine]:
        """Return a line for each asked share (or, if that is not known, for each dial value), the smallest first.

        Seeds may have different dial values for the same asked share, since thresholds are calibrated per training.
        """
        found: dict[float, list[DialPoint]] = {}
        for points in self.seeds.values():
            for point in points:
                found.setdefault(point.dial if point.asked is None else point.asked, []).append(point)
        return [_line(found[place], metric) for place in sorted(found)]


@dataclass(frozen=True)
class DialLine:
    """Means over the seeds measured at one asked share or dial value.

    Attributes:
        dial: Smallest and largest dial value of the seeds.
        saved: Savings by name that all seeds know; `times` likewise by setting.
        score: Mean score; `None` if the metric has no scores of single documents.
        seeds: Number of seeds.
    """

    dial: tuple[float, float]
    asked: float | None
    saved: Mapping[str, float]
    times: Mapping[str, float]
    score: float | None
    seeds: int


def dial_tables(sweeps: Iterable[Mapping[str, Any]]) -> list[DialTable]:
    """Make dial tables from the plain values of an `answers.json`, in its order; sweeps without dial values are left
    out.
    """
    found: dict[tuple[str, str, float | None], dict[int, list[DialPoint]]] = {}
    for sweep in sweeps:
        if all("dial" in point for point in sweep["points"]):
            place = (with_semantics(sweep["method"], sweep["semantics"]), sweep["task"], sweep["target"])
            found.setdefault(place, {})[sweep["seed"]] = list(map(DialPoint.of, sweep["points"]))
    return [DialTable(*place, seeds) for place, seeds in found.items()]


def _line(points: Sequence[DialPoint], metric: str) -> DialLine:
    dials = [point.dial for point in points]
    scores = [fmean(one) for point in points if len(one := point.scores.get(metric, ()))]
    return DialLine(
        (min(dials), max(dials)),
        points[0].asked,
        _means([point.saved for point in points]),
        _means([point.times for point in points]),
        fmean(scores) if len(scores) == len(points) else None,
        len(points),
    )


def _means(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(one[name] for one in values) for name in values[0] if all(name in one for one in values)}
