"""Dial tables: which saving and score each dial value gave, read from measured points; and dials that do nothing.

Every value is a mean over the seeds that measured it. A dial *cannot move* a task if all its values save the same, or
if every document scores the same at all of them: then no level of saving compares anything on that task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from adaptive_bench.store.evaluation import MATCH_PHASES, Axis, MatchPhase, saving_name
from adaptive_bench.tables.crossed import Floats
from adaptive_bench.tables.matching import FLAW_TOLERANCE
from adaptive_bench.tables.rows import with_semantics

_AXES: tuple[Axis, ...] = ("tokens", "core", "net")  # `layers` is left out: it moves with `net`


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


def immovable(tables: Sequence[DialTable], metric: str) -> list[str]:
    """Return a sentence for each thing that dials of methods cannot move on a task; empty if all dials work.

    Args:
        tables: Dial tables of one task.
        metric: The headline metric of the task. Scores count as unmoved if no metric moves on any document.
    """
    still: dict[str, list[str]] = {}
    same: list[tuple[str, list[DialPoint]]] = []
    for table in tables:
        sweeps = [points for points in table.seeds.values() if len({point.dial for point in points}) > 1]
        if not sweeps or len(sweeps) < len(table.seeds):
            continue  # one dial value is no dial
        known = [phase for phase in MATCH_PHASES if _is_known(sweeps, phase)]
        unmoved = [phase for phase in known if _saves_the_same(sweeps, phase)]
        if unmoved and unmoved == known:
            still.setdefault("all", []).append(table.name)
            continue
        for phase in unmoved:
            still.setdefault(phase, []).append(table.name)
        if _scores_the_same(sweeps):
            same.append((table.name, [point for points in sweeps for point in points]))
    task = tables[0].task if tables else ""
    said = [
        f"{_dials(names)} cannot move {task}: all dial values of a method save the same there."
        if phase == "all"
        else f"{_dials(names)} cannot move the saving of {phase} on {task}: all dial values of a method save the same."
        for phase, names in still.items()
    ]
    if same:
        points = [point for _, some in same for point in some]
        said.append(
            f"{_dials([name for name, _ in same])} cannot move the score of {task}: at all dial values of a method "
            f"every document scores the same{_range(points)}{_everywhere(points, metric)}."
        )
    return said


def _dials(names: Sequence[str]) -> str:
    return f"The dial{'' if len(names) == 1 else 's'} of {', '.join(names)}"


def _range(points: Sequence[DialPoint]) -> str:
    saved = [100 * point.saved["net"] for point in points if "net" in point.saved]
    return f", from {min(saved) + 0.0:.1f} to {max(saved):.1f} % of saved net FLOPs" if saved else ""


def _everywhere(points: Sequence[DialPoint], metric: str) -> str:
    """Name the score if all documents have the same: at a metric's floor or ceiling no dial can move it."""
    values = {float(value) for point in points for value in point.scores.get(metric, ())}
    return f", namely {values.pop():.4g}" if len(values) == 1 else ""


def _is_known(sweeps: Sequence[Sequence[DialPoint]], phase: MatchPhase) -> bool:
    return all(saving_name(axis, phase) in point.saved for axis in _AXES for points in sweeps for point in points)


def _saves_the_same(sweeps: Sequence[Sequence[DialPoint]], phase: MatchPhase) -> bool:
    """Whether no seed's savings of a phase move on any axis by more than noise."""
    return all(
        max(values) - min(values) <= FLAW_TOLERANCE
        for points in sweeps
        for axis in _AXES
        for values in [[point.saved[saving_name(axis, phase)] for point in points]]
    )


def _scores_the_same(sweeps: Sequence[Sequence[DialPoint]]) -> bool:
    """Whether every document of every seed scores the same at all dial values, in every metric."""
    return all(
        points[0].scores
        and all(
            list(point.scores.get(metric, ())) == list(values)
            for metric, values in points[0].scores.items()
            for point in points[1:]
        )
        for points in sweeps
    )


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
