"""The ranked table of a board: methods at one level of one axis, best first, over all tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from adaptive_bench.metric import metric_of
from adaptive_bench.spec import method_name
from adaptive_bench.store.savings import saving_name
from adaptive_bench.tables.comparison import rank_intervals

from .decisions import is_apart
from .frame import Board
from .grid import STATIC, Grid, grids
from .paired import gives
from .row import Row
from .rows import first_metrics
from .tables import FAMILY_OF_CONTROLS

PREFERRED = 0.15  # the saving of the paper's second table
RULE = (
    "Overall is the mean over the tasks of the share of the dense score that a method keeps. The ends of its interval "
    "are the means of the tasks' ends: scores on several tasks may be correlated through their seeds, and no "
    "dependence makes the mean spread more than that (the dense scores are taken as known). A method without a score "
    "on one of the tasks has no mean. Ranks: with one task, those of the paired tests among methods alone; with "
    "several, a method is ahead where its interval lies above the other's. Controls are not ranked."
)
_SAVING_NOTHING = ("dense", "base", "gated")  # controls that stand at 0 % wherever others are read off
Interval = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A method in the table.

    Attributes:
        control: Whether it is a control or treats all tokens alike (`STATIC`), and so has no rank.
        level: Where it is read off: at the table's level, of controls that save nothing at 0.
        rows: By task of the standing; `None` where there is no score.
        overall, interval: Mean share of the dense score over the tasks; `None` unless all of them have one.
        rank: Best and worst rank that is left open.
        lost: Mean over the tasks of how much less of the dense score is kept with the decisions of other tokens.
        loses: On how many of `asked` tasks that is certain; `asked` is 0 where it was not measured.
        times: By setting the share of time saved where the score was read off, mean over the tasks.
    """

    label: str
    control: bool
    level: float
    rows: tuple[Row | None, ...]
    overall: float | None = None
    interval: Interval | None = None
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
        left_out: Names of tasks whose dense score is unknown or 0: nothing is a share of it.
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
    counted = tuple(grid for grid in chosen if any(row.kept is not None for row in grid.cells.values()))
    labels = list(dict.fromkeys(label for grid in chosen for label in grid.methods))
    lines = [_line(board, counted, label, level) for label in labels]
    ranked = sorted((one for one in lines if one.overall is not None and not one.control), key=_worst_last)
    ranks = _ranks(board, counted, level, ranked)
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
    whole = [row for row in rows if row is not None and row.kept is not None]
    if not whole or len(whole) < len(rows):
        return Line(label, control, at, rows)
    ends = [(row.kept_low, row.kept_high) for row in whole]
    known = [(low, high) for low, high in ends if low is not None and high is not None]
    interval = (fmean(low for low, _ in known), fmean(high for _, high in known)) if len(known) == len(ends) else None
    lost, loses, asked = _with_other_decisions(whole)
    overall = fmean(row.kept for row in whole if row.kept is not None)
    return Line(label, control, at, rows, overall, interval, None, lost, loses, asked, _times(board, whole))


def _row(grid: Grid, label: str, level: float) -> Row | None:
    row = grid.cells.get((label, level))
    return None if row is None or row.score is None else row


def _with_other_decisions(rows: Sequence[Row]) -> tuple[float | None, int, int]:
    """Mean loss in shares of the dense score, on how many tasks it is certain, and how many were asked soundly."""
    lost, loses, asked = [], 0, 0
    for row in rows:
        if row.shuffled_score is None or row.kept is None or not row.score or is_apart(row):
            continue
        # The dense score, out of the share that is kept of it; the same whichever way the metric goes.
        kept = metric_of(row.metric).retention(row.shuffled_score, row.score)
        if kept is not None:
            lost.append(row.kept * (1 - kept))
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


def _ranks(
    board: Board, counted: Sequence[Grid], level: float, ranked: Sequence[Line]
) -> Mapping[str, tuple[int, int]]:
    by_label = {line.label: line for line in ranked}
    tests = board.comparisons.get((counted[0].place, level)) if len(counted) == 1 else None

    def better(one: str, other: str) -> bool:
        if tests is not None:
            return tests.better(one, other)
        ours, theirs = by_label[one].interval, by_label[other].interval
        return ours is not None and theirs is not None and ours[0] > theirs[1]

    return rank_intervals(list(by_label), better)
