"""Whether methods were trained for long enough: what `adaptive-bench steps` left beside a table, as `steps.json`.

Untrusted like every table: each of its scores has to be a row that a board lets in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from adaptive_bench.tables.doubling import reversals_text

from .grid import AXES, grids
from .marks import NOT_CONVERGED
from .plain import plain
from .row import Row
from .rows import Rejected, checked, read_json

FILE_NAME = "steps.json"
_LARGEST = 10**9
_Place = tuple[str, str, int]  # task, method, steps


@dataclass(frozen=True)
class StepsRecord:
    """Methods after N, 2N, 4N ... steps at one level, on validation documents.

    Attributes:
        steps: The numbers that were compared.
        enough: The least N after which no order reverses at 2N; `None` if none.
        backbone, recipes: Of the trainings, as in rows of a table; recipes by steps.
        scores: In the order of the record.
        moving: Where the score moves with certainty when steps are doubled.
        told_apart: By N how many pairs tests told apart after N steps, of how many, on all tasks together.
        reversals: The task, both methods and N of each order that reverses.
        seeds: How many there are.
    """

    steps: tuple[int, ...]
    enough: int | None
    backbone: str | None
    recipes: Mapping[int, str]
    scores: Mapping[_Place, Row]
    moving: frozenset[_Place]
    told_apart: Mapping[int, tuple[int, int]]
    reversals: tuple[tuple[str, str, str, int], ...]
    seeds: int

    def steps_of(self, row: Row) -> int | None:
        """The number of steps that a row's method was trained for, if all else is as in this record."""
        if row.backbone != self.backbone:
            return None
        return next((steps for steps, recipe in self.recipes.items() if recipe == row.recipe), None)

    def mark(self, rows: Iterable[Row]) -> None:
        """Mark the rows whose method is not converged after the steps that it was trained for."""
        for row in rows:
            steps = self.steps_of(row)
            if steps is not None and (row.task, row.spec, steps) in self.moving:
                row.not_converged = True


def read_steps(folder: Path, rows: Iterable[Row]) -> StepsRecord | None:
    """The record beside a table; `None` where there is none.

    Args:
        rows: Of the table.

    Raises:
        Rejected: It is damaged, breaks a rule, or its trainings are of another recipe than the table's.
    """
    path = folder / FILE_NAME
    if not path.is_file() or path.is_symlink():
        return None
    try:
        record = _record(read_json(path))
    except (KeyError, TypeError, ValueError, AttributeError) as why:
        if isinstance(why, Rejected):
            raise
        raise Rejected(f"it does not hold what `adaptive-bench steps` writes ({type(why).__name__})") from why
    if not any(record.steps_of(row) for row in rows):
        raise Rejected("the table's methods were trained by another recipe")
    return record


def sections(record: StepsRecord, rows: Iterable[Row]) -> tuple[list[str], list[dict[str, Any]]]:
    """What a record says of a board: sentences, and a table for each task with `title`, `header` and `lines`.

    Args:
        rows: Of the board.
    """
    methods = list(dict.fromkeys(method for _, method, _ in record.scores))
    tables = []
    for task in dict.fromkeys(task for task, _, _ in record.scores):
        of_task = {place[1:]: row for place, row in record.scores.items() if place[0] == task}
        some = next(iter(of_task.values()))
        (grid,) = grids([some])
        lines = [
            [method, *(_cell(record, of_task.get((method, steps)), steps) for steps in record.steps)]
            for method in methods
            if any(row.score is not None for (name, _), row in of_task.items() if name == method)
        ]
        title = f"{grid.compared} at {100 * some.level:.4g} % {AXES[some.axis]}"
        tables.append({"title": title, "header": ["method", *map(str, record.steps)], "lines": lines})
    return _said(record, rows), tables


def as_markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of `sections`."""
    align = ("left", *("right" for _ in header[1:]))
    return tabulate(lines, header, tablefmt="github", colalign=align, disable_numparse=True)


def _said(record: StepsRecord, rows: Iterable[Row]) -> list[str]:
    judged = record.steps[:-1]
    sentences = [
        f"None of {', '.join(map(str, judged))} training steps is shown to be enough."
        if record.enough is None
        else f"{record.enough} training steps are enough: no order of two methods that tests tell apart reverses at "
        f"{2 * record.enough}."
    ]
    for steps in judged:
        apart, pairs = record.told_apart.get(steps, (0, 0))
        reversals = [(task, first, second) for task, first, second, number in record.reversals if number == steps]
        sentences.append(reversals_text(steps, apart, pairs, reversals))
    trained = sorted({known for row in rows if (known := record.steps_of(row)) is not None})
    sentences.append(f"The methods in the table were trained for {' or '.join(map(str, trained))} steps.")
    if record.steps[-1] in trained:
        sentences.append(f"Whether a method is converged after {record.steps[-1]} is not known.")
    mark, _ = NOT_CONVERGED
    alone = "one seed, and so on documents alone" if record.seeds == 1 else f"{record.seeds} seeds and documents"
    sentences.append(
        f"{mark} the score moves with certainty when steps are doubled. Scores are of validation documents; tests and "
        f"intervals rest on {alone}."
    )
    return sentences


def _cell(record: StepsRecord, row: Row | None, steps: int) -> str:
    if row is None:
        return ""
    (grid,) = grids([row])
    mark = NOT_CONVERGED[0] if (row.task, row.method, steps) in record.moving else ""
    score, _, interval = grid.score(row.label, row.level).partition(" ")
    return f"{score}{mark} {interval}".rstrip()


def _record(value: Mapping[str, Any]) -> StepsRecord:
    steps = tuple(map(_whole, value["steps"]))
    recipe = value["recipe"]
    about = {"axis": recipe["match_on"], "phase": recipe["match_phase"], "level": value["level"]}
    scores: dict[_Place, Row] = {}
    for one in value["scores"]:
        told = {key: one[key] for key in ("method", "task", "metric", "score", "low", "high", "documents", "seeds")}
        row = Row.of(checked(told | about | {"status": "outside" if one["score"] is None else "ok"}))
        scores[row.task, row.method, _whole(one["steps"])] = row
    known = {(task, method) for task, method, _ in scores}
    moving, reversals = set(), []
    told_apart: dict[int, tuple[int, int]] = {}
    for one in value["doublings"]:
        number, task = _whole(one["steps"]), one["task"]
        moving |= {(task, method, number) for method in one["not_converged"]}
        apart, pairs = told_apart.get(number, (0, 0))
        told_apart[number] = apart + _count(one["told_apart"][0]), pairs + _count(one["pairs"])
        reversals += [(task, first, second, number) for first, second in one["reversals"]]
    named = [place[:2] for place in moving] + [(task, name) for task, *pair, _ in reversals for name in pair]
    if not known.issuperset(named) or not {number for *_, number in scores} <= set(steps) or len(steps) < 2:
        raise Rejected("it says something of a method or a number of steps that it has no score of")
    enough = value["enough"]
    return StepsRecord(
        steps,
        None if enough is None else _whole(enough),
        None if value["backbone"] is None else plain(value["backbone"]),
        {_whole(int(number)): plain(text, 1000) for number, text in value["recipes"].items()},
        scores,
        frozenset(moving),
        told_apart,
        tuple(reversals),
        len(recipe["seeds"]),
    )


def _whole(value: object) -> int:
    if (number := _count(value)) == 0:
        raise Rejected("steps are at least one")
    return number


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _LARGEST:
        raise Rejected("steps and pairs are whole numbers")
    return value
