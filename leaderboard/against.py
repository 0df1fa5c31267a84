"""Comparisons that no column holds: with the model before training, and with a control at its own measured savings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from adaptive_bench.metric import metric_of
from adaptive_bench.spec import method_name
from adaptive_bench.tables.comparison import Difference
from adaptive_bench.tables.document_scores import DocumentScores

from .answers import Answers
from .frame import Board
from .grid import Grid
from .marks import FAR, PARTIAL, is_far_off, marks_at_point, target_marks
from .paired import gives, over
from .row import Row

OWN_SAVINGS = (0.05, 0.30)  # from where to where a control's own points are looked at


@dataclass(frozen=True)
class AtOwnSaving:
    """Methods against a control at a saving that the control was measured at.

    Attributes:
        saving: Of the control, mean over its seeds.
        score: Its mean score there.
        over: By label the difference in the method's favour, corrected for the comparisons at this saving.
        marks: By label, the control's among them, the marks of its score there; of its training, those of the nearest
            level, but for the number of layers that the control itself leaves out there.
    """

    saving: float
    score: float
    over: Mapping[str, Difference]
    marks: Mapping[str, str]


def over_base(board: Board, grid: Grid, level: float) -> dict[str, Difference]:
    """By label how much better than the model before training a method scores at a level (`dense` where it saves
    nothing), corrected for these comparisons. Empty where the base was not measured, or documents are not known.
    """
    base = base_of(grid)
    if base is None or metric_of(grid.metric).better == "unknown":
        return {}
    rows = {base.label: base}
    for label in grid.methods:
        row = grid.cells.get((label, 0.0 if method_name(label) == "dense" else level))
        if row is not None and row.score is not None:
            rows[label] = row
    source = _source(board, base)
    scores = {label: found for label, row in rows.items() if (found := _scores(board, row, source)) is not None}
    return over(base.label, scores, metric_of(grid.metric)) if base.label in scores and len(scores) > 1 else {}


def base_of(grid: Grid) -> Row | None:
    """The row of the model before training, where there is one with a score."""
    found = [row for (label, at), row in grid.cells.items() if method_name(label) == "base" and at == 0]
    return next((row for row in found if row.score is not None), None)


def at_own_savings(board: Board, grid: Grid, control: str) -> list[AtOwnSaving]:
    """Every method against a control where the control was measured, method by method read off its own points.

    Args:
        grid: With all its levels: of several targets each saving takes the one that serves the nearest level.
        control: Its label.
    """
    if grid.axis == "time" or metric_of(grid.metric).better == "unknown":
        return []
    found = []
    reached = [_near(grid, control, level) for level in grid.levels]
    for row in {row.target: row for row in reached if row is not None}.values():
        source = _source(board, row)
        if source is None:
            continue
        for dial, by_seed in source.points_of(row).items():
            saving = fmean(saved for saved, _ in by_seed.values())
            near = _near(grid, control, saving)
            if OWN_SAVINGS[0] <= saving <= OWN_SAVINGS[1] and near is not None and near.target == row.target:
                own = DocumentScores.of({seed: scores for seed, (_, scores) in by_seed.items()})
                at_point = "".join(mark for mark, _ in marks_at_point(near, source.skipped_at(row, dial)))
                found.append(_at(board, grid, control, saving, own, at_point, source))
    return sorted({one.saving: one for one in found}.values(), key=lambda one: one.saving)


def _at(
    board: Board, grid: Grid, control: str, saving: float, own: DocumentScores, at_point: str, source: Answers
) -> AtOwnSaving:
    scores, marked = {control: own}, {control: at_point}
    for label in grid.methods:
        near = _near(grid, label, saving)
        answers = None if near is None or label == control else _source(board, near, source)
        if near is None or answers is None:
            continue
        (there,) = answers.at_levels(near, [saving])
        if there is not None:
            scores[label] = there
            partial = PARTIAL if len(there.seeds) < len(answers.seeds(near)) else ""
            far = FAR if is_far_off(answers.distance(near, saving)) else ""
            marked[label] = partial + "".join(mark for mark, _ in target_marks(near)) + far
    differences = over(control, scores, metric_of(grid.metric)) if len(scores) > 1 else {}
    return AtOwnSaving(saving, float(own.values.mean()), differences, marked)


def _near(grid: Grid, label: str, saving: float) -> Row | None:
    """The row of a method at the level above nothing that is nearest to a saving, of those that it reached."""
    rows = [row for (name, at), row in grid.cells.items() if name == label and at > 0 and row.score is not None]
    return min(rows, key=lambda row: abs(row.level - saving), default=None)


def _scores(board: Board, row: Row, beside: Answers | None) -> DocumentScores | None:
    source = _source(board, row, beside)
    return None if source is None else source.at_levels(row, [row.level])[0]


def _source(board: Board, row: Row, beside: Answers | None = None) -> Answers | None:
    """The answers that give a row's score, to the documents that `beside` has answers to."""
    for run, some in board.answers.items():
        if board.measured is not None and (row.task, row.conditions) not in board.measured.get(run, ()):
            continue
        if beside is not None and some.digests.get(row.task) != beside.digests.get(row.task):
            continue
        (scores,) = some.at_levels(row, [row.level])
        if scores is not None and gives(scores, row):
            return some
    return None
