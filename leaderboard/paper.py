"""Puts the GateSkip paper's tables beside ours: its values as printed, ours from records.

As in the paper, savings are counted in tokens and scores are interpolated between measured points. A value that no
record has stays empty. Orders are to be compared, not numbers, unless the model is the paper's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

from adaptive_bench.errors import UsageError

from .boards import Board, read_board
from .list_text import NONE, number
from .provenance import variants_of
from .row import Row, first_metrics

AXIS = "tokens"
# Generated tasks that stand in for the paper's own tasks if those were not evaluated.
STAND_INS = {
    "gsm8k": "nano_math", "csqa": "nano_qa", "csqa_ll": "nano_qa_ll", "lambada": "nano_text", "mmlu_gen": "nano_qa",
}  # fmt: skip
_METRICS = {"written": ("exact_match", "em"), "likelihood": ("acc", "acc_norm"), "seconds": ("exact_match", "em")}
_KINDS = {"written": "generative", "likelihood": "log-likelihood", "seconds": "timed"}
BEYOND = "not in the paper"
_DEFAULT = "(default)"  # marks a default in the names of ablation rows
_BYTES = 4e-6  # megabytes of a parameter in fp32, as the paper counts them
_Line = dict[str, Any]


@cache
def paper_tables() -> list[dict[str, Any]]:
    """Tables 1 to 13: number, caption, column groups, columns and rows.

    Values are texts as the paper prints them, with mean ± standard deviation if it gives both, and empty if it gives
    none.
    """
    tables: list[dict[str, Any]] = json.loads(files(__package__).joinpath("paper.json").read_text(encoding="utf-8"))
    return tables


def contents() -> list[dict[str, str]]:
    """Every table with its caption and the commands that make it."""
    return [
        {"table": str(one["table"]), "about": one["caption"], "commands": _commands(one["presets"])}
        for one in paper_tables()
    ]


def paper_beside(tables: Sequence[Path], number: int) -> tuple[list[dict[str, Any]], list[str]]:
    """A table of the paper beside ours for every model of some runs (see `beside`), and what the board left out.

    Args:
        tables: `table.json` files of runs; without any, only the paper's values are shown.
        number: Number of the paper's table.

    Raises:
        UsageError: The paper has no such table.
    """
    numbers = [one["table"] for one in paper_tables()]
    if number not in numbers:
        raise UsageError(f"The paper's tables are {', '.join(map(str, numbers))}, got {number}.")
    board = read_board(tables) if tables else Board([])
    return beside(board, number), list(board.problems)


def beside(board: Board, table: int) -> list[dict[str, Any]]:
    """A table of the paper beside the values of a board, once for every model, or alone if nothing was measured.

    Returns:
        Plain values for each model: `table`, `caption`, `source`, `model`, `columns`, `groups` of columns (`name`,
        `first`, `columns`), `rows` (`name`, `label`, and for each column `theirs` and `ours` as texts), `said` (remarks
        on models and tasks), and the `commands` that make our values.
    """
    (theirs,) = [one for one in paper_tables() if one["table"] == table]
    by_model: dict[str | None, list[Row]] = {}
    pools = theirs["model"] is None or theirs.get("across_models", False)  # such a table takes the rows of all models
    for row in board.rows:
        by_model.setdefault(None if pools else row.conditions.model, []).append(row)
    return [_Join(theirs, some, board).table(model) for model, some in (by_model or {None: []}).items()]


def form_of(row: Row) -> str:
    """The form that the weights were quantized to; empty if they were not quantized."""
    return _settings(row).get("quantize", "")


def _settings(row: Row) -> dict[str, str]:
    return dict(one.partition(" ")[::2] for one in (row.recipe or "").split(", "))


def _is_plain(row: Row) -> bool:
    """Whether the weights were not quantized and the answers not sampled."""
    return _settings(row).keys().isdisjoint(("quantize", "temperature"))


def _commands(presets: Mapping[str, Sequence[str]]) -> str:
    """The commands that make a table, on the nano model and on the paper's models."""
    places = (("nano", "On the nano model"), ("paper", "On the paper's models"))
    parts = [f"{where}: {' and '.join(f'`{one}`' for one in presets[kind])}" for kind, where in places if presets[kind]]
    return ". ".join(parts) + "."


class _Join:
    """Joins a table of the paper with the board's rows."""

    def __init__(self, table: Mapping[str, Any], rows: Sequence[Row], board: Board) -> None:
        self._table, self._rows, self._board = table, rows, board
        self._variants = variants_of(board.folders)  # for each tuned spec, the method without its tuned parameters
        self._first = first_metrics(rows)
        self._stand_ins: dict[str, str] = {}
        self._means: dict[str, list[str]] = {}

    def table(self, model: str | None) -> dict[str, Any]:
        """The joined table as plain values, see `beside`."""
        table = self._table
        # First, since this notes the tasks and stand-ins that `_said` reports.
        lines = [line for row in table["rows"] for line in self._lines(row)] + self._beyond()
        if model is None and self._rows:
            model = ", ".join(dict.fromkeys(row.conditions.model or "" for row in self._rows)) or None
        groups, start = [], 0
        for name, count in table["groups"] or [("", len(table["columns"]))]:
            groups.append({"name": name, "first": start, "columns": table["columns"][start : start + count]})
            start += count
        commands = _commands(table["presets"])
        measured = any(line["label"] for line in lines)
        return {
            **{name: table[name] for name in ("table", "caption", "source", "columns")},
            "model": model,
            "groups": groups,
            "rows": [line for line in lines if _is_beside_its_like(line, lines)],
            "said": self._said(model) if measured else [f"Table {table['table']} is not measured here. {commands}"],
            "commands": commands,
        }

    def _said(self, ours: str | None) -> list[str]:
        """Remarks: which models both sides used, which tasks our means cover, and which tasks stand in for others."""
        theirs, told = self._table["model"], []
        if theirs is not None and (ours is None or ours.rpartition("/")[2] != theirs.rpartition("/")[2]):
            told.append(f"The paper's model is {theirs}, ours {ours}: orders are compared, not numbers.")
        means = [f"{_KINDS[kind]} tasks are {', '.join(tasks) or 'none'}" for kind, tasks in self._means.items()]
        if means:
            told.append(f"Here the {', the '.join(means)}.")
        if self._stand_ins:
            stand = ", ".join(f"{one} for {other}" for other, one in self._stand_ins.items())
            told.append(f"Generated tasks stand in for the paper's: {stand}.")
        return told

    def _lines(self, row: Mapping[str, Any]) -> list[_Line]:
        blank = {"name": row["name"], "section": row["section"], "theirs": [text or NONE for text in row["values"]]}
        nothing = {"label": None, "ours": [NONE] * len(row["values"])}
        return self._found(blank, [one for one in self._rows if self._is_of(one, row)]) or [blank | nothing]

    def _beyond(self) -> list[_Line]:
        """Lines for the table's methods on models or in forms that the paper does not have: another family, 8 bits."""
        rows, over_models = self._table["rows"], self._table["model"] is None
        known, of_forms = {row["method"] for row in rows}, any("forms" in row for row in rows)
        by_model: dict[str, list[Row]] = {}
        for one in self._rows:
            # A table of forms gets our further forms, a table over models our further models, and others nothing.
            asked = form_of(one) if of_forms else over_models and _is_plain(one)
            if asked and self._variant(one) in known and not any(self._is_of(one, row) for row in rows):
                by_model.setdefault(one.conditions.model or "", []).append(one)
        blank = {"name": BEYOND, "section": None, "theirs": [NONE] * len(self._table["columns"])}
        return [
            line | ({"label": f"{line['label']} of {model}"} if over_models else {})
            for model, some in by_model.items()
            for line in self._found(blank, some)
        ]

    def _found(self, blank: _Line, rows: Sequence[Row]) -> list[_Line]:
        """A line for each of our methods in each form in which it was measured."""
        by_label: dict[str, list[Row]] = {}
        for one in rows:
            by_label.setdefault(f"{one.label}, {form_of(one)}" if form_of(one) else one.label, []).append(one)
        found = [
            blank | {"label": label, "ours": [self._value(some, *ask) for ask in self._table["asks"]]}
            for label, some in by_label.items()
        ]
        return [line for line in found if set(line["ours"]) != {NONE}]

    def _variant(self, ours: Row) -> str:
        return self._variants.get(ours.spec, ours.spec).partition("@")[0]

    def _is_of(self, ours: Row, row: Mapping[str, Any]) -> bool:
        measured = form_of(ours) in row["forms"] if "forms" in row else _is_plain(ours)
        return measured and self._variant(ours) == row["method"] and row.get("model", "").lower() == self._named(ours)

    def _named(self, ours: Row) -> str:
        """The name that the table's rows of this method use for the model: the longest one that its name contains."""
        name, method = (ours.conditions.model or "").lower(), self._variant(ours)
        known = {row.get("model", "").lower() for row in self._table["rows"] if row["method"] == method}
        # `llama-3.2-1b` is part of `llama-3.2-1b-instruct` too, hence the longest.
        return max((one for one in known if one in name), key=len, default="")

    def _value(self, rows: Sequence[Row], what: str | None, level: float) -> str:
        """The text of a cell: a mean over all tasks of a kind, the score of one task, or the total seconds."""
        # What a column asks for: `written`, `perplexity lambada`, `megabytes`, or nothing that we measure.
        kind, _, name = (what or "").partition(" ")
        if kind == "megabytes":
            added = [row.parameters_added for row in rows if row.parameters_added is not None]
            return f"{_BYTES * added[0]:.4g}" if added else NONE
        if kind in _METRICS:
            tasks = [task for task, metric in self._first.items() if metric.partition(",")[0] in _METRICS[kind]]
            self._means[kind] = tasks
        else:
            tasks = [task] if (task := self._task(name)) is not None else []
        asked = [(task, metric) for task in tasks if (metric := self._metric(kind, task))]
        known = [row for one in asked if (row := _asked_most(rows, *one)) is not None]
        found = [between for row in known if (between := self._between(row, level))[0] is not None]
        # A mean over some of the tasks would look like the mean over all.
        if not found or len(found) < len(tasks):
            return NONE
        if kind == "seconds":
            seconds = [one for _, one in found if one is not None]
            return f"{sum(seconds):.4g}" if len(seconds) == len(found) else NONE
        # Columns do not mix units: any of the metrics tells how to write the mean.
        return number(known[0].metric, fmean(score for score, _ in found if score is not None))

    def _between(self, row: Row, level: float) -> tuple[float | None, float | None]:
        """Score and seconds of a row's method at a share of skipped tokens."""
        behind = self._board.behind(row)
        # With the level asked for, so that the training whose target is nearest to it answers.
        return (None, None) if behind is None else behind[0].between(replace(row, level=level), level, AXIS)

    def _task(self, name: str) -> str | None:
        """The task itself if it was evaluated, else the task that stands in for it, if any."""
        if name in self._first or not name:
            return name or None
        if (other := STAND_INS.get(name, "")) in self._first:
            self._stand_ins[name] = other
            return other
        return None

    def _metric(self, kind: str, task: str) -> str | None:
        """The metric of a task that a column asks for; bits per byte replace perplexity if that is missing."""
        if kind not in ("perplexity", "acc"):
            return self._first[task]
        there = {row.metric for row in self._rows if row.task == task}
        wanted = (f"{kind},none",) if kind == "acc" else ("perplexity,none", "bits_per_byte,none")
        return next((metric for metric in wanted if metric in there), None)


def _is_beside_its_like(line: _Line, lines: Sequence[_Line]) -> bool:
    """Whether a line belongs into the table: a default only if its semantics are those of its section's ablations."""
    if line["label"] is None or _DEFAULT not in line["name"]:
        return True
    beside = [
        one for one in lines if one["section"] == line["section"] and one["label"] and _DEFAULT not in one["name"]
    ]
    return not beside or any(("@paper" in one["label"]) == ("@paper" in line["label"]) for one in beside)


def _asked_most(rows: Sequence[Row], task: str, metric: str) -> Row | None:
    """The row on a task and metric with the most documents."""
    some = [row for row in rows if (row.task, row.metric) == (task, metric) and row.score is not None]
    return max(some, key=lambda row: row.documents, default=None)
