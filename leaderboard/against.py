"""Comparisons that no column holds: with the model before training, and with cutting layers where that was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from adaptive_bench.metric import metric_of
from adaptive_bench.spec import method_name
from adaptive_bench.tables.comparison import Difference
from adaptive_bench.tables.document_scores import DocumentScores

from .answers import Answers
from .frame import Board
from .grid import Grid
from .marks import FAR, PARTIAL, is_far_off, marks_at_point, other_layers, target_marks
from .paired import gives, is_trained_static, over
from .row import Row

OWN_SAVINGS = (0.05, 0.30)  # from where to where a control's own points are looked at


@dataclass(frozen=True)
class AtOwnSaving:
    """Methods against a control at a saving that the control was measured at.

    Attributes:
        control: Its label.
        saving: Of the control, mean over its seeds.
        score: Its mean score there.
        over: By label the difference in the method's favour, corrected for the comparisons at this saving.
        marks: By label, the control's among them, the marks of its score there; of its training, those of the nearest
            level, but for the number of layers that the control itself leaves out there.
    """

    control: str
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


def at_own_savings(board: Board, grid: Grid) -> list[AtOwnSaving]:
    """Every method against cutting layers where that was measured, method by method read off its own points. Of each
    number of layers that is left out it is the best control of those that were trained to leave out so many; where
    tables do not say for how many, of all of them.

    Args:
        grid: With all its levels.
    """
    if grid.axis == "time" or metric_of(grid.metric).better == "unknown":
        return []
    sign = -1 if metric_of(grid.metric).better == "lower" else 1
    best: dict[float, _Cut] = {}
    for label in filter(is_trained_static, grid.methods):
        rows = [row for (name, at), row in grid.cells.items() if name == label and at > 0 and row.score is not None]
        for row in {row.target: row for row in rows}.values():
            source = _source(board, row)
            for cut in () if source is None else _cuts(row, source):
                known = best.get(cut.layers)
                if known is None or sign * cut.scores.values.mean() > sign * known.scores.values.mean():
                    best[cut.layers] = cut
    return sorted((_at(board, grid, cut) for cut in best.values()), key=lambda one: one.saving)


@dataclass(frozen=True)
class _Cut:
    """A measured point of a control that leaves out layers, and was trained for it.

    Attributes:
        row: Of the control.
        layers: Share of the layers that are left out; the dial value where that is not known.
        saving: Mean over its seeds.
    """

    row: Row
    source: Answers
    layers: float
    saving: float
    scores: DocumentScores
    marks: str


def _cuts(row: Row, source: Answers) -> Iterator[_Cut]:
    for dial, by_seed in source.points_of(row).items():
        saving, skipped = fmean(saved for saved, _ in by_seed.values()), source.skipped_at(row, dial)
        if OWN_SAVINGS[0] <= saving <= OWN_SAVINGS[1] and not other_layers(row.trained_without, skipped):
            scores = DocumentScores.of({seed: scores for seed, (_, scores) in by_seed.items()})
            marked = "".join(mark for mark, _ in marks_at_point(row, skipped))
            yield _Cut(row, source, round(dial if skipped is None else skipped, 3), saving, scores, marked)


def _at(board: Board, grid: Grid, cut: _Cut) -> AtOwnSaving:
    control, saving = cut.row.label, cut.saving
    scores, marked = {control: cut.scores}, {control: cut.marks}
    for label in grid.methods:
        near = _near(grid, label, saving)
        answers = None if near is None or label == control else _source(board, near, cut.source)
        if near is None or answers is None:
            continue
        (there,) = answers.at_levels(near, [saving])
        if there is not None:
            scores[label] = there
            partial = PARTIAL if len(there.seeds) < len(answers.seeds(near)) else ""
            far = FAR if is_far_off(answers.distance(near, saving)) else ""
            marked[label] = partial + "".join(mark for mark, _ in target_marks(near)) + far
    differences = over(control, scores, metric_of(grid.metric)) if len(scores) > 1 else {}
    return AtOwnSaving(control, saving, float(cut.scores.values.mean()), differences, marked)


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
