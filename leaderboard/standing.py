"""The ranked table of a board: methods at one level of one axis, best first, over all tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from adaptive_bench.metric import Metric, metric_of
from adaptive_bench.spec import method_name
from adaptive_bench.store.evaluations import saving_name
from adaptive_bench.tables.comparison import rank_intervals
from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.tables.intervals import UNBOUNDED, interval

from .decisions import is_apart
from .frame import Board
from .grid import STATIC, Grid, grids
from .paired import compare, gives
from .row import Row
from .rows import first_metrics
from .tables import FAMILY_OF_CONTROLS

PREFERRED = 0.15  # the saving of the paper's second table
RULE = (
    "Overall is the mean over the tasks of scores on one scale: 0 for the model before training, or for a guess where "
    "that is better, and 100 for the dense model, linear between and beyond (both are taken as known). Its interval is "
    "over seeds and documents; a seed's scores on several tasks count together. Ranks come from paired tests of the "
    "overall scores of all methods, over seeds and documents, corrected by Holm's method. A method without a score on "
    "one of the tasks has no overall score, and one whose documents are not known has no interval and is not told "
    "apart. Controls are not ranked."
)
_SAVING_NOTHING = ("dense", "base", "gated")  # controls that stand at 0 % wherever others are read off
_OVERALL = Metric("higher")  # below 0 and above 1 too
_MOST_DOCUMENTS = 10**12  # of a task
Interval = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A method in the table.

    Attributes:
        control: Whether it is a control or treats all tokens alike (`STATIC`), and so has no rank.
        level: Where it is read off: at the table's level, of controls that save nothing at 0.
        rows: By task of the standing; `None` where there is no score.
        overall, interval: Mean over the tasks on the scale of `Row.scaled`; `None` unless all of them have a score.
        scores: Of the overall score, see `_joint`; `None` where documents are not known.
        rank: Best and worst rank that is left open.
        lost: Mean over the tasks of how much is lost with the decisions of other tokens, on the same scale.
        loses: On how many of `asked` tasks that is certain; `asked` is 0 where it was not measured.
        times: By setting the share of time saved where the score was read off, mean over the tasks.
    """

    label: str
    control: bool
    level: float
    rows: tuple[Row | None, ...]
    overall: float | None = None
    interval: Interval | None = None
    scores: DocumentScores | None = None
    rank: tuple[int, int] | None = None
    lost: float | None = None
    loses: int = 0
    asked: int = 0
    times: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Standing:
    """The table.

    Attributes:
        tasks: Grids of the tasks that count, one for each.
        left_out: Names of tasks on which the dense model is not known to be better than the model before training and
            than a guess: they have no scale.
        lines: Ranked methods best first, those without a mean, then controls.
    """

    axis: str
    phase: str
    setting: str | None
    level: float
    tasks: tuple[Grid, ...]
    left_out: tuple[str, ...]
    lines: tuple[Line, ...]


def standings(board: Board) -> list[Standing]:
    """Of one model and recipe, for every axis, phase, setting and level above nothing."""
    first = first_metrics(board.rows)
    by_view: dict[tuple[str, str, str | None], list[Grid]] = {}
    for grid in grids(row for row in board.rows if first[row.task] == row.metric):
        by_view.setdefault((grid.axis, grid.phase, grid.setting), []).append(grid)
    found = []
    for view, there in by_view.items():
        chosen = _asked_alike(there)
        for level in sorted({level for grid in chosen for level in grid.levels if level > 0}):
            found.append(_standing(board, view, chosen, level))
    return found


def preferred(levels: Sequence[float]) -> float | None:
    """The level that is shown first: the one nearest to 15 %."""
    return min(levels, key=lambda level: (abs(level - PREFERRED), level), default=None)


def _asked_alike(there: Sequence[Grid]) -> list[Grid]:
    """Of a task that was asked in several ways the one with the most documents."""
    largest: dict[str, Grid] = {}
    for grid in there:
        known = largest.setdefault(grid.task, grid)
        if (grid.conditions.documents or 0) > (known.conditions.documents or 0):
            largest[grid.task] = grid
    return list(largest.values())


def _standing(board: Board, view: tuple[str, str, str | None], chosen: Sequence[Grid], level: float) -> Standing:
    counted = tuple(grid for grid in chosen if any(row.is_scaled for row in grid.cells.values()))
    labels = list(dict.fromkeys(label for grid in chosen for label in grid.methods))
    lines = [_line(board, counted, label, level) for label in labels]
    ranked = sorted((one for one in lines if one.overall is not None and not one.control), key=_worst_last)
    ranks = _ranks(counted, ranked)
    known = [replace(one, rank=ranks[one.label]) for one in ranked]
    unknown = [one for one in lines if one.overall is None and not one.control]
    controls = sorted((one for one in lines if one.control), key=_worst_last)
    left_out = tuple(grid.name for grid in chosen if grid not in counted)
    return Standing(*view, level, counted, left_out, (*known, *unknown, *controls))


def _worst_last(line: Line) -> float:
    return float("inf") if line.overall is None else -line.overall


def _line(board: Board, counted: Sequence[Grid], label: str, level: float) -> Line:
    control = method_name(label) in (*FAMILY_OF_CONTROLS, *STATIC)
    at = level
    if method_name(label) in _SAVING_NOTHING and not any(_row(grid, label, level) for grid in counted):
        at = 0.0
    rows = tuple(_row(grid, label, at) for grid in counted)
    whole = [row for row in rows if row is not None and row.is_scaled]
    if not whole or len(whole) < len(rows):
        return Line(label, control, at, rows)
    overall = fmean(row.scaled(row.reached()) for row in whole)
    scores = _joint(board, counted, whole)
    lost, loses, asked = _with_other_decisions(whole)
    about = (overall, _interval(whole, scores), scores, None, lost, loses, asked)
    return Line(label, control, at, rows, *about, _times(board, whole))


def _joint(board: Board, counted: Sequence[Grid], rows: Sequence[Row]) -> DocumentScores | None:
    """What the seeds of a method score on the documents of all tasks together, so that the mean is its overall score
    and varies with seeds and documents as that does: each document counts by its task's share of the mean, about the
    mean of its task. Of one task the scores as they are.
    """
    found = []
    for grid, row in zip(counted, rows, strict=True):
        tests = board.comparisons.get((grid.place, row.level))
        found.append(None if tests is None else tests.scores.get(row.label))
    known = [one for one in found if one is not None]
    if len(known) < len(rows) or len(rows) == 1:
        return known[0] if len(known) == 1 == len(rows) else None
    seeds = [seed for seed in known[0].seeds if all(seed in one.seeds for one in known)]
    if not seeds:
        return None
    scaled = [
        row.scaled(one.values[[one.seeds.index(seed) for seed in seeds]]) for row, one in zip(rows, known, strict=True)
    ]
    documents = [(place, document) for place, one in enumerate(known) for document in one.documents]
    mean, each = fmean(float(one.mean()) for one in scaled), len(documents) / len(rows)
    values = np.concatenate([mean + each / one.shape[1] * (one - one.mean()) for one in scaled], axis=1)
    return DocumentScores(tuple(seeds), tuple(place * _MOST_DOCUMENTS + one for place, one in documents), values)


def _interval(rows: Sequence[Row], scores: DocumentScores | None) -> Interval | None:
    if len(rows) == 1:
        ends = sorted(map(rows[0].scaled, rows[0].interval or ()))
        return (ends[0], ends[1]) if ends else None
    found = None if scores is None else interval(scores.values, UNBOUNDED)
    return None if found is None or found.low is None or found.high is None else (found.low, found.high)


def _row(grid: Grid, label: str, level: float) -> Row | None:
    row = grid.cells.get((label, level))
    return None if row is None or row.score is None else row


def _with_other_decisions(rows: Sequence[Row]) -> tuple[float | None, int, int]:
    """Mean loss on the scale, on how many tasks it is certain, and how many were asked soundly."""
    lost, loses, asked = [], 0, 0
    for row in rows:
        if row.shuffled_score is None or is_apart(row):
            continue
        lost.append(row.scaled(row.reached()) - row.scaled(row.shuffled_score))
        asked += 1
        loses += row.decisions_low is not None and row.decisions_low > 0
    return (fmean(lost) if len(lost) == len(rows) else None), loses, asked


def _times(board: Board, rows: Sequence[Row]) -> dict[str, float] | None:
    """By setting the time saved where the scores were read off, of settings that all the tasks have."""
    found: list[dict[str, float]] = []
    for row in rows:
        if row.axis == "time":
            return None  # the level itself
        for some in board.answers.values():
            if not some.timed:
                continue
            (scores,) = some.at_levels(row, [row.level])
            if scores is not None and gives(scores, row):
                found.append(some.times_at(row, saving_name(row.axis, row.phase)))
                break
    settings = [setting for setting in (found[0] if found else {}) if all(setting in one for one in found)]
    if len(found) < len(rows) or not settings:
        return None
    return {setting: fmean(one[setting] for one in found) for setting in settings}


def plain_ms(board: Board, line: Line) -> dict[str, float]:
    """By setting milliseconds of the plain model for a new token, as timed beside the method of a line."""
    known = [some.plain_ms(row) for row in line.rows if row is not None for some in board.answers.values()]
    return {setting: ms for one in known for setting, ms in one.items()}


def _ranks(counted: Sequence[Grid], ranked: Sequence[Line]) -> Mapping[str, tuple[int, int]]:
    metric = metric_of(counted[0].metric) if len(counted) == 1 else _OVERALL
    known = {line.label: line.scores for line in ranked if line.scores is not None}
    tests = compare(known, metric) if known else None

    def better(one: str, other: str) -> bool:
        return tests is not None and one in known and other in known and tests.better(one, other)

    return rank_intervals([line.label for line in ranked], better)
