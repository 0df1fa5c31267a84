"""Scores of single documents, from the `answers.json` of a run or from an entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from adaptive_bench.store.evaluation import saving_name
from adaptive_bench.store.measured import Floats
from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.tables.matching import interpolated, nearest, nearest_target

from .row import Rejected, Row, read_of_run

FILE_NAME = "answers.json"
_SAME = 1e-6  # largest difference between a score and the mean of its documents


@dataclass(frozen=True)
class DialPoint:
    """One dial value of one seed.

    Attributes:
        saved: Savings by name (see `saving_name`).
        times: Share of time saved, by setting.
        scores: By metric, one value per document, [D].
        seconds: Seconds that the evaluation took, if known.
    """

    saved: Mapping[str, float]
    times: Mapping[str, float]
    scores: Mapping[str, Floats]
    seconds: float | None = None


@dataclass(frozen=True)
class SweptAnswers:
    """The measured points of one method, task and seed, with the `target` if the method was trained towards several."""

    seed: int
    target: float | None
    documents: tuple[int, ...]
    points: tuple[DialPoint, ...]


@dataclass
class Answers:
    """The answers of one run.

    Attributes:
        sweeps: By method, semantics and task.
    """

    sweeps: dict[tuple[str, str, str], list[SweptAnswers]] = field(default_factory=dict)

    def of(self, row: Row) -> list[SweptAnswers]:
        """The sweeps that belong to a row: those of the training whose target is nearest to the row's level."""
        some = self.sweeps.get((row.method, row.semantics, row.task), [])
        chosen = nearest_target((one.target for one in some), row.level)
        return [one for one in some if one.target == chosen]

    def scores(self, row: Row) -> DocumentScores | None:
        """The document scores, by seed, that average to a row's score; `None` if the row does not come from these."""
        by_seed = {}
        for sweep, point in self._points(row):
            if row.metric not in point.scores:
                return None
            by_seed[sweep.seed] = dict(zip(sweep.documents, point.scores[row.metric].tolist(), strict=True))
        # `DocumentScores.of` refuses seeds without a common document.
        if not by_seed or not set.intersection(*map(set, by_seed.values())):
            return None
        found = DocumentScores.of(by_seed)
        # If the mean differs, these are another run's measurements, and tests on them would not be of this row.
        gives = row.score is not None and abs(float(found.values.mean()) - row.score) <= _SAME
        return found if gives else None

    def times(self, row: Row) -> dict[str, float]:
        """For each setting, the share of time saved at the row's points, averaged over seeds."""
        return shared_means([point.times for _, point in self._points(row)])

    def between(self, row: Row, level: float, axis: str = "tokens") -> tuple[float | None, float | None]:
        """Score and seconds at a level of saving, interpolated between measured points as in the paper's tables.

        Both are averaged over the seeds that reach the level.
        """
        scores, seconds = [], []
        for sweep in self.of(row):
            points = [one for one in sweep.points if row.metric in one.scores]
            savings = [one.saved.get(axis) for one in points]
            # [P, 2]: NaN where a point has no time, which interpolation passes on.
            known = np.array([[float(one.scores[row.metric].mean()), one.seconds or np.nan] for one in points])
            if points and (found := interpolated(savings, known, level)) is not None:
                scores.append(float(found[0]))
                seconds.append(float(found[1]))
        if not scores:
            return None, None
        took = fmean(seconds)
        return fmean(scores), None if np.isnan(took) else took

    def _points(self, row: Row) -> Iterator[tuple[SweptAnswers, DialPoint]]:
        for sweep in self.of(row):
            place = nearest([one.saved.get(saving_name(row.axis, row.phase)) for one in sweep.points], row.level)
            if place is not None:
                yield sweep, sweep.points[place]


def shared_means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """By name, the mean of the values that all have under it."""
    names = [name for name in (found[0] if found else {}) if all(name in one for one in found)]
    return {name: fmean(one[name] for one in found) for name in names}


def read_answers(folder: Path) -> Answers:
    """The answers of a run; empty if it has none, as in runs of earlier versions."""
    path = folder / FILE_NAME
    return answers_of(read_of_run(path)) if path.is_file() else Answers()


def answers_of(values: Any) -> Answers:
    """The answers from the parsed values of an `answers.json`; what a run would not write is `Rejected`."""
    answers = Answers()
    try:
        for entry in values["sweeps"]:
            place = (entry["method"], entry["semantics"], entry["task"])
            points = []
            for one in entry["points"]:
                # The scores are a text of 0 and 1, or a list of numbers.
                scores = {metric: np.array([float(score) for score in some]) for metric, some in one["scores"].items()}
                points.append(DialPoint(one["saved"], one.get("times", {}), scores, one.get("seconds")))
            sweep = SweptAnswers(entry["seed"], entry["target"], tuple(entry["documents"]), tuple(points))
            answers.sweeps.setdefault(place, []).append(sweep)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Rejected(f"{FILE_NAME} does not hold what a run writes ({type(error).__name__})") from error
    return answers
