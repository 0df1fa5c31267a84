"""Ranked lists of a board: dense, controls and methods at one level of saving over all tasks, best first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean

import numpy as np

from adaptive_bench import registry
from adaptive_bench.spec import method_name
from adaptive_bench.tables.comparison import Column, Difference, rank_intervals
from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.tables.intervals import UNBOUNDED, interval
from adaptive_bench.tables.outcome import known_mean
from adaptive_bench.task import metric_of

from .boards import Board
from .row import Row, first_metrics
from .swept_answers import shared_means

PREFERRED = 0.15  # the level nearest to this saving is shown first
RULE = (
    "Score: mean over tasks; 100 is dense, 0 a guess (of bits and perplexity: base, the model before training). "
    "Intervals are 95 %, over {over}. A rank of 2-4 spans the places that paired tests leave open (Holm). Skipped: "
    "attentions and MLPs of single tokens; more than is saved where gates, probes or their keys and values cost."
)
SAVES_NOTHING = ("dense", "base")
_DECLARATION = re.compile(r"^    (adapts|once_per_prompt) = (True|False)$", re.MULTILINE)  # class attributes in a file
_BY_CHANCE = ("random_skip", "position_skip")
_MOST_DOCUMENTS = 10**12  # exceeds the document numbers of any task
_MOST_RANKED = 100  # which makes 4950 pairs to test
Interval = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A line of the list: one method at the level of the list.

    Attributes:
        score, interval: Mean over tasks on the scale of `Row.scaled`; `None` unless every task has a score.
        scores: Scores by seed and document, see `_joint`; `None` if the documents' scores are not known.
        rank: Best and worst rank that the tests leave open; `None` unless every seed meets the level on every task.
        over_static: Difference from the best static control's score, corrected for all these comparisons.
        skipped, net, projected: Skipped token-branches, saved net FLOPs, and saved net FLOPs at another model's
            shape, averaged over tasks.
        lost: Loss with the decisions of other tokens, averaged over tasks, on the same scale as `score`.
    """

    label: str  # name of the method on this board
    chooses: str  # how it decides: `per token`, `per prompt`, `by chance` or `never`; empty if it skips nothing
    rows: tuple[Row | None, ...]  # its row for each task of the standing; `None` for a task without a score
    saved: float | None = None  # measured saving on the axis of the level, averaged over tasks
    score: float | None = None
    interval: Interval | None = None
    scores: DocumentScores | None = None
    rank: tuple[int, int] | None = None
    over_static: Difference | None = None
    skipped: float | None = None
    net: float | None = None
    projected: float | None = None
    times: Mapping[str, float] = field(default_factory=dict)  # share of time saved by setting, averaged over tasks
    lost: float | None = None
    eligible: str = ""  # the sites at which tokens may skip

    @property
    def time(self) -> float | None:
        """The smallest share of time saved in the settings that were timed."""
        return min(self.times.values(), default=None)

    @property
    def is_reference(self) -> bool:
        """Whether this is a model that skips nothing."""
        return method_name(self.label) in SAVES_NOTHING

    @property
    def is_static(self) -> bool:
        """Whether this method leaves out the same layers or branches for every token."""
        return method_name(self.label) == "static_depth"


@dataclass(frozen=True)
class Standing:
    """The list at one level of saving.

    Attributes:
        axis, phase, level: What the saving is measured on, in which phase, and how large it is.
        tasks: Names of the tasks that count, with their metrics.
        left_out: Tasks on which the dense model is not known to be clearly better than what counts as 0 (`Row.floor`),
            and which therefore have no scale.
        lines: Best first; lines without a score on some task come last.
    """

    axis: str
    phase: str
    level: float
    tasks: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]
    lines: tuple[Line, ...]

    @property
    def ranked(self) -> list[Line]:
        """The lines that have a rank."""
        return [line for line in self.lines if line.rank is not None]

    @property
    def static(self) -> str | None:
        """Label of the best static control that meets the level, if there is one."""
        return next((line.label for line in self.ranked if line.is_static), None)

    @property
    def seeds(self) -> int:
        """Smallest number of seeds of a ranked line."""
        return min((row.seeds for line in self.ranked for row in line.rows if row is not None), default=0)


def standings(board: Board) -> list[Standing]:
    """The lists of one model and recipe: one for each axis and phase of matching and each level above 0."""
    first = first_metrics(board.rows)
    rows = [row for row in board.rows if row.metric == first[row.task] and row.level > 0]
    views = dict.fromkeys((row.axis, row.phase) for row in rows)
    found = []
    for axis, phase in views:
        here = [row for row in rows if (row.axis, row.phase) == (axis, phase)]
        # One set of documents for each task at all levels, so that the chart's lines are of the same questions.
        chosen = _asked_alike(here)
        found += [_standing(board, axis, phase, level, chosen) for level in sorted({row.level for row in chosen})]
    return found


def preferred(found: Sequence[Standing]) -> Standing | None:
    """The list that is shown first: the one whose level is nearest to 15 %."""
    return min(found, key=lambda one: (abs(one.level - PREFERRED), one.level), default=None)


def _asked_alike(rows: Sequence[Row]) -> list[Row]:
    """The rows of each task under one set of conditions: if there are several, those with the most documents."""
    most: dict[str, Row] = {}
    for row in rows:
        known = most.setdefault(row.task, row)
        if (row.conditions.documents or 0) > (known.conditions.documents or 0):
            most[row.task] = row
    return [row for row in rows if row.conditions == most[row.task].conditions]


def _standing(board: Board, axis: str, phase: str, level: float, rows: Sequence[Row]) -> Standing:
    by_task: dict[str, dict[str, Row]] = {}  # by label within a task
    for row in rows:
        if row.level == level:
            by_task.setdefault(row.task, {})[row.label] = row
    counted = {task: found for task, found in by_task.items() if any(row.is_scaled for row in found.values())}
    scored = [task for task, found in by_task.items() if any(row.score is not None for row in found.values())]
    left_out = tuple(task for task in scored if task not in counted)
    counted = counted or by_task  # without any scale, all tasks are shown and no line has a score
    labels = dict.fromkeys(label for found in by_task.values() for label in found)
    lines = [_line(board, label, [found.get(label) for found in counted.values()]) for label in labels]
    lines = _ranked(lines, [next(iter(found.values())) for found in counted.values()])
    tasks = tuple((task, next(iter(found.values())).metric) for task, found in counted.items())
    return Standing(axis, phase, level, tasks, left_out, tuple(lines))


def _line(board: Board, label: str, rows: Sequence[Row | None]) -> Line:
    reached = tuple(None if row is None or row.score is None else row for row in rows)
    some = [row for row in reached if row is not None]
    line = Line(label, chooses(label), reached)
    if not some:
        return line
    behind = [board.behind(row) for row in some]
    line = replace(
        line,
        saved=known_mean([row.saved for row in some]),
        skipped=known_mean([row.saved_tokens for row in some]),
        net=known_mean([row.saved_net for row in some]),
        projected=known_mean([row.projected_net for row in some]),
        times=shared_means([{} if one is None else one[0].times(row) for one, row in zip(behind, some, strict=True)]),
        eligible=" or ".join(dict.fromkeys(row.eligible for row in some if row.eligible not in (None, "", "none"))),
    )
    # A mean over fewer tasks than others have would not be comparable: savings are shown, a score is not.
    if len(some) < len(rows) or not all(row.is_scaled for row in some):
        return line
    scores = _joint([None if one is None else one[1] for one in behind], some)
    lost = [
        row.scaled(row.reached()) - row.scaled(row.shuffled_score) for row in some if row.shuffled_score is not None
    ]
    return replace(
        line,
        score=fmean(row.scaled(row.reached()) for row in some),
        interval=_interval(some, scores),
        scores=scores,
        lost=fmean(lost) if len(lost) == len(some) else None,
    )


def chooses(label: str) -> str:
    """How a method decides; empty for models that skip nothing. A method that is not here counts as `per token`."""
    name = method_name(label)
    if name in SAVES_NOTHING:
        return ""
    if name in _BY_CHANCE:
        return "by chance"
    said = _declared(name) if name in registry.names("methods") else {}
    if not said.get("adapts", True):
        return "never"
    return "per prompt" if said.get("once_per_prompt", False) else "per token"


def _declared(name: str) -> dict[str, bool]:
    """What a method's class declares about its decisions. Our own files are parsed, since importing needs PyTorch."""
    file = registry.file_of("methods", name)
    if file is None or registry.is_foreign("methods", name):
        found = registry.get("methods", name)
        return {key: getattr(found, key) for key in ("adapts", "once_per_prompt") if hasattr(found, key)}
    return {key: value == "True" for key, value in _DECLARATION.findall(file.read_text(encoding="utf-8"))}


def _joint(known: Sequence[DocumentScores | None], rows: Sequence[Row]) -> DocumentScores | None:
    """A method's scores by seed and document over all tasks together, or `None` if some task's are not known.

    Their mean is the method's overall score, and varies with seeds and documents as the overall score does: the
    deviation of a document from its task's mean is weighted by the task's share of the overall mean.
    """
    found = [one for one in known if one is not None]
    if len(found) < len(rows):
        return None
    seeds = [seed for seed in found[0].seeds if all(seed in one.seeds for one in found)]
    if not seeds:
        return None
    scaled = [
        row.scaled(one.values[[one.seeds.index(seed) for seed in seeds]]) for row, one in zip(rows, found, strict=True)
    ]
    # `each` is N / T, for N documents in all and T tasks. A deviation on a task of D documents gets the weight
    # N / (T D), so that the mean over the N columns gives every task 1 / T.
    documents = [(place, document) for place, one in enumerate(found) for document in one.documents]
    mean, each = fmean(float(one.mean()) for one in scaled), len(documents) / len(rows)
    values = np.concatenate([mean + each / one.shape[1] * (one - one.mean()) for one in scaled], axis=1)
    # Tasks number their documents from 0: the task's place makes the numbers unique.
    return DocumentScores(tuple(seeds), tuple(place * _MOST_DOCUMENTS + one for place, one in documents), values)


def _interval(rows: Sequence[Row], scores: DocumentScores | None) -> Interval | None:
    # On one task the row has an interval that respects the metric's range. Sorted: if lower is better, ends swap.
    if len(rows) == 1:
        if rows[0].low is None or rows[0].high is None:
            return None
        low, high = sorted(map(rows[0].scaled, (rows[0].low, rows[0].high)))
        return low, high
    found = None if scores is None else interval(scores.values, UNBOUNDED)
    return None if found is None or found.low is None or found.high is None else (found.low, found.high)


def _ranked(lines: Sequence[Line], tasks: Sequence[Row]) -> list[Line]:
    """The lines, best first; those that meet the level get a rank and a comparison with the best static control."""
    ordered = sorted(lines, key=lambda line: (line.score is None, -(line.score or 0.0)))
    meeting = [
        line
        for line in ordered
        if line.score is not None and not line.is_reference and all(row and row.status == "ok" for row in line.rows)
    ][:_MOST_RANKED]
    known = {line.label: line.scores for line in meeting if line.scores is not None}
    # On a single task the scores have the metric's bounds, which limit the intervals.
    bounds = UNBOUNDED
    if len(tasks) == 1 and tasks[0].is_scaled:
        low, high = sorted(map(tasks[0].scaled, (metric_of(tasks[0].metric).low, metric_of(tasks[0].metric).high)))
        inside = all(low <= one.values.min() and one.values.max() <= high for one in known.values())
        bounds = (low, high) if inside and np.isfinite([low, high]).all() else UNBOUNDED
    tests = Column(known, bounds)
    pairs = tests.family(list(combinations(known, 2)))
    ranks = rank_intervals(
        [line.label for line in meeting],
        lambda one, other: (found := pairs.get((one, other))) is not None and found.apart and found.difference > 0,
    )
    # A family of its own, so that the question of the board does not pay for all pairs (docs/statistics.md).
    static = next((line.label for line in meeting if line.is_static), None)
    over = tests.family([(name, static) for name in known if name != static]) if static in known and static else {}
    return [
        replace(line, rank=ranks.get(line.label), over_static=over.get((line.label, static or ""))) for line in ordered
    ]
