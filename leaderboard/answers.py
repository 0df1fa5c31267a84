"""Scores of single documents as runs leave them in `answers.json`, and as an entry comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from adaptive_bench.store.evaluations import Point, saving_name
from adaptive_bench.tables.document_scores import DocumentScores, matched_scores
from adaptive_bench.tables.matching import mixes

from .row import Row
from .rows import Rejected, read_of_run

FILE_NAME = "answers.json"
_Place = tuple[str, str, str, Any]  # method, semantics, task, target


@dataclass(frozen=True)
class SweptAnswers:
    """Measured points of one method, task and seed; each has its savings, saved times and scores [D] by metric, and
    its dial value and the saving it was asked for where the run says them. `plain_ms`: see `tables.outcome`.
    """

    seed: int
    documents: tuple[int, ...]
    points: tuple[tuple[Mapping[str, float], Mapping[str, float], Mapping[str, np.ndarray]], ...]
    dials: tuple[float, ...] = ()
    asked: tuple[float, ...] = ()
    plain_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Answers:
    """The answers of one run.

    Attributes:
        sweeps: By method, semantics, task and target.
        digests: Of the documents, by task; methods are compared on the same documents only.
    """

    sweeps: dict[_Place, list[SweptAnswers]] = field(default_factory=dict)
    digests: dict[str, str | None] = field(default_factory=dict)

    def at_levels(self, row: Row, levels: Sequence[float]) -> list[DocumentScores | None]:
        """Scores of documents at the levels of a row's table, `None` where no seed reached one."""
        found: list[dict[int, dict[int, float]]] = [{} for _ in levels]
        for sweep in self._sweeps(row):
            for place, scores in enumerate(_matched(sweep, row, levels)):
                if scores is not None:
                    found[place][sweep.seed] = dict(zip(sweep.documents, scores.tolist(), strict=True))
        return [
            DocumentScores.of(by_seed) if by_seed and set.intersection(*map(set, by_seed.values())) else None
            for by_seed in found
        ]

    def points_of(self, row: Row) -> dict[float, dict[int, tuple[float, dict[int, float]]]]:
        """By dial value the points that every seed of a row's method was measured at: of each seed the saving on the
        row's axis and the scores by document. Not for saved time, which belongs to no point.
        """
        sweeps = self._sweeps(row)
        found: dict[float, dict[int, tuple[float, dict[int, float]]]] = {}
        name = saving_name(row.axis, row.phase)
        for sweep in sweeps:
            for dial, (saved, _, scores) in zip(sweep.dials, sweep.points, strict=False):
                if name in saved and row.metric in scores:
                    by_document = dict(zip(sweep.documents, scores[row.metric].tolist(), strict=True))
                    found.setdefault(dial, {}).setdefault(sweep.seed, (saved[name], by_document))
        return {dial: by_seed for dial, by_seed in sorted(found.items()) if len(by_seed) == len(sweeps)}

    def skipped_at(self, row: Row, dial: float) -> float | None:
        """Share of the token-branches that a row's method skips at a dial value, mean over the seeds measured there."""
        found = [
            saved[saving_name("tokens", "all")]
            for sweep in self._sweeps(row)
            for at, (saved, _, _) in zip(sweep.dials, sweep.points, strict=False)
            if at == dial and saving_name("tokens", "all") in saved
        ]
        return fmean(found) if found else None

    def seeds(self, row: Row) -> list[int]:
        """The seeds of a row's method, whether they reached its level or not."""
        return [sweep.seed for sweep in self._sweeps(row)]

    def distance(self, row: Row, level: float) -> float:
        """How far the level is from what the method of a row was measured at: see the row's own `distance`."""
        name = saving_name(row.axis, row.phase)
        found = [
            mix.distance
            for sweep in self._sweeps(row)
            for mix in mixes(
                [0.0] * len(sweep.points), [saved.get(name) for saved, _, _ in sweep.points], [level], name
            )
        ]
        return max(found, default=0.0)

    @cached_property
    def timed(self) -> bool:
        """Whether the time of any point is known."""
        return any(times for some in self.sweeps.values() for sweep in some for _, times, _ in sweep.points)

    def times_at(self, row: Row, name: str) -> dict[str, float]:
        """By setting the share of time saved where a row's score was read off, mean over the seeds that reached it.

        Args:
            name: The saving that the row's level is a share of (see `saving_name`).
        """
        found: dict[str, list[float]] = {}
        for sweep in self._sweeps(row):
            savings = [saved.get(name) for saved, _, _ in sweep.points]
            (mix,) = mixes([0.0] * len(savings), savings, [row.level], name)
            for setting in dict.fromkeys(setting for _, times, _ in sweep.points for setting in times):
                values = np.array([times.get(setting, np.nan) for _, times, _ in sweep.points])
                if mix.below and np.isfinite(value := float(mix.of(values))):
                    found.setdefault(setting, []).append(value)
        return {setting: fmean(values) for setting, values in found.items()}

    def plain_ms(self, row: Row) -> dict[str, float]:
        """By setting milliseconds that the plain model took for a new token, as timed beside a row's method."""
        return {setting: ms for sweep in self._sweeps(row) for setting, ms in sweep.plain_ms.items()}

    def _sweeps(self, row: Row) -> Sequence[SweptAnswers]:
        return self.sweeps.get((row.method, row.semantics, row.task, row.target), [])


def read_answers(folder: Path) -> Answers:
    """The answers beside a table; empty where its run wrote none.

    Raises:
        Rejected: The file is damaged or breaks a rule.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        return Answers()
    return answers_of(read_of_run(path))


def answers_of(value: Any) -> Answers:
    """Answers from the plain values of such a file.

    Raises:
        Rejected: They are none.
    """
    try:
        answers = Answers()
        for entry in value["sweeps"]:
            place = (entry["method"], entry["semantics"], entry["task"], entry["target"])
            answers.sweeps.setdefault(place, []).append(_sweep(entry))
            answers.digests.setdefault(place[2], entry["documents_sha256"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Rejected(f"{FILE_NAME} does not hold what a run writes ({type(error).__name__})") from error
    return answers


def _sweep(entry: Mapping[str, Any]) -> SweptAnswers:
    points = tuple(
        (point["saved"], point["times"], {metric: _scores(values) for metric, values in point["scores"].items()})
        for point in entry["points"]
    )
    dials, asked = (_of_all(entry["points"], key) for key in ("dial", "asked"))
    return SweptAnswers(entry["seed"], tuple(entry["documents"]), points, dials, asked, entry.get("plain_ms", {}))


def _of_all(points: Sequence[Mapping[str, Any]], key: str) -> tuple[float, ...]:
    """A number of each point; nothing where some have none."""
    known = tuple(float(point[key]) for point in points if key in point)
    return known if len(known) == len(points) else ()


def _matched(sweep: SweptAnswers, row: Row, levels: Sequence[float]) -> list[np.ndarray | None]:
    metric, timed = row.metric, row.axis == "time"
    name = "time" if timed else saving_name(row.axis, row.phase)
    if not sweep.points or any(metric not in scores for _, _, scores in sweep.points):
        return []
    points = []
    for saved, times, scores in sweep.points:
        there = {"time": times[row.timing]} if row.timing is not None and timed and row.timing in times else dict(saved)
        points.append(Point(0.0, float(scores[metric].mean()), there))
    return matched_scores(points, np.array([scores[metric] for _, _, scores in sweep.points]), levels, name)


def _scores(values: str | Sequence[float]) -> np.ndarray:
    return np.array([float(one) for one in values])
