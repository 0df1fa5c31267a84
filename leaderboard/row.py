"""Checks rows of tables, and adds to them what a board compares and scales scores by."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from adaptive_bench import registry
from adaptive_bench.errors import AdaptiveBenchError, message_of
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.measured import Floats
from adaptive_bench.store.runs import read_json as read_run_file
from adaptive_bench.tables import rows
from adaptive_bench.tables.comparability import Conditions, conditions_of
from adaptive_bench.task import Task, metric_of
from adaptive_bench.validation import rule_of

from .plain import plain

Score = TypeVar("Score", float, Floats)
_LEAST_ROOM = 0.15  # between 0 and 100, as a share of the dense score: a smaller scale would blow up chance differences
_LONGEST_TEXT = 1000
_LONGEST_REASON = 2000
_MARKUP = re.compile(r'[<>`|\\{}"$]|\]\(|//|www\.')  # markup, of which names have none


class Rejected(ValueError):
    """An entry, a table or a row was refused; the message says why, in one line of plain text."""


@dataclass(frozen=True, kw_only=True)
class Row(rows.Row):
    """A score at a level. Its fields are the columns of `table.json`, which `docs/tables.md` explains.

    Rows of earlier versions have fewer columns. Unknown values are `None`.

    Attributes:
        evidence, checked, external: What supports the row, see `entry.Entry.of_row`; `None` in a run that is no entry.
        run: End of the run's name, if runs disagree on the method's scores, see `tables.comparability.joined`.
        beside: For a row without `run`, the run it comes from, if runs disagree on the dense model; the row is compared
            with the dense model of that run.
        dense, base: Scores of the dense model and of the model before training on the task; not columns.
    """

    evidence: str | None = None
    checked: bool | None = None
    external: str | None = None
    run: str | None = None
    beside: str | None = None
    dense: float | None = field(default=None, metadata={"column": False})
    base: float | None = field(default=None, metadata={"column": False})

    @cached_property
    def conditions(self) -> Conditions:
        """The conditions it was measured under; rows with other conditions are not comparable."""
        return conditions_of(vars(self))

    @property
    def spec(self) -> str:
        """The method with its semantics, unless that is the default `bench` or part of the method already."""
        return rows.with_semantics(self.method, self.semantics)

    @property
    def label(self) -> str:
        """The method's name on this board: its spec, and its run if runs disagree."""
        return self.spec if self.run is None else f"{self.spec} ({self.run})"

    def reached(self) -> float:
        """The score of a row that has one."""
        assert self.score is not None
        return self.score

    @property
    def floor(self) -> float | None:
        """The score that counts as 0: that of a guess if higher is better, else that of the model before training.

        A pretrained model answers many tasks before it is trained, so that its score leaves no room below the dense
        model's; a guess does. Of bits, a guess takes so many that all methods would look alike. Whichever is not known
        gives way to the other. If higher is better, the score is at least 0.
        """
        better, guess = metric_of(self.metric).better, chance_of(self.task, self.metric)
        if better == "higher":
            return max(0.0, (self.base or 0.0) if guess is None else guess)
        return (guess if self.base is None else self.base) if better == "lower" else None

    @property
    def is_scaled(self) -> bool:
        """Whether the dense model is known to be clearly better than `floor`; else there is no scale between them."""
        if self.dense is None or self.floor is None:
            return False
        # Positive if dense is better than the floor, whichever way the metric points.
        room = (self.dense - self.floor) * (-1 if metric_of(self.metric).better == "lower" else 1)
        return room > _LEAST_ROOM * abs(self.dense)

    def scaled(self, scores: Score) -> Score:
        """Scores of the row's metric on a linear scale with 0 at `floor` and 1 at the dense model.

        Only for a row that `is_scaled`.
        """
        assert self.dense is not None and self.floor is not None
        return (scores - self.floor) / (self.dense - self.floor)

    def plain(self) -> dict[str, Any]:
        """The row's columns by name, with its label first."""
        return {"label": self.label} | {name: getattr(self, name) for name in COLUMNS}


COLUMNS = dict.fromkeys(one.name for one in fields(Row) if one.metadata.get("column", True))


@cache
def chance_of(task: str, metric: str) -> float | None:
    """The score of a guess; known only for the first metric of a task that is registered here."""
    name = task.partition(":")[0]
    found = registry.get("tasks", name) if name in registry.names("tasks") else None
    if not isinstance(found, Task) or metric != found.metrics[0] or math.isnan(found.chance):
        return None
    return found.chance


def beside_dense(found: Iterable[Row]) -> list[Row]:
    """Adds to each row the scores of the dense model and of the model before training on its task and metric.

    If runs disagree on these scores, a row gets those of its own run.
    """
    every = list(found)
    known: dict[tuple[Any, ...], float] = {}
    for row in every:
        if row.method in ("dense", "base") and row.score is not None:
            # Neither skips anything, so their score is the same at every level: the first row's will do.
            known.setdefault((row.method, row.run or "", row.conditions, row.task, row.metric), row.score)

    def score(row: Row, method: str) -> float | None:
        place = row.conditions, row.task, row.metric
        # Runs that agree on it share one row, which names no run.
        return known.get((method, row.run or row.beside or "", *place), known.get((method, "", *place)))

    return [replace(row, dense=score(row, "dense"), base=score(row, "base")) for row in every]


def first_metrics(found: Iterable[Row]) -> dict[str, str]:
    """For each task, the metric by which it is judged: that of its first row."""
    first: dict[str, str] = {}
    for row in found:
        first.setdefault(row.task, row.metric)
    return first


def spec_of(row: Mapping[str, Any]) -> str:
    """The method of a row with its semantics, written as in `methods.json`."""
    return rows.with_semantics(str(row["method"]), row.get("semantics", "bench"))


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Rejected(f"{path.name} is not readable JSON ({type(error).__name__})") from error


def read_of_run(path: Path) -> Any:
    """The content of a JSON file that a run wrote; the message of an error has the command that writes it again."""
    try:
        return read_run_file(path)
    except AdaptiveBenchError as error:
        # The message has paths and a command, so it may be longer than other reasons.
        raise Rejected(plain(message_of(error), _LONGEST_REASON).removesuffix(".")) from error


def checked(value: object) -> dict[str, Any]:
    """A row of a table, reduced to the columns that a board knows.

    Raises:
        Rejected: A value is missing or of the wrong type, a number is not finite, or a text is not one plain line.
    """
    try:
        row = _form().model_validate(value).model_dump()
        # The method's name becomes that of a file: see `page.method_pages.page_of`.
        MethodSpec.parse(row["method"])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"{plain('.'.join(map(str, first['loc'])), 60)}: " if first["loc"] else ""
        raise Rejected(f"{where}{rule_of(first)}, got {plain(repr(first['input']), 40)}") from error
    except AdaptiveBenchError as error:
        raise Rejected(plain(message_of(error), 200)) from error
    for name, text in row.items():
        if isinstance(text, str) and (plain(text, _LONGEST_TEXT) != text or _MARKUP.search(text)):
            raise Rejected(
                f"{name} is a line of at most {_LONGEST_TEXT} characters without markup, got {plain(text, 40)!r}"
            )
    return row


@cache
def _form() -> type[BaseModel]:
    """A model that validates the columns of a table and ignores others."""
    types = get_type_hints(rows.Row)
    defaults = {one.name: one.default for one in fields(rows.Row)}
    # `...` makes a field required.
    defaults |= dict.fromkeys(("method", "task", "metric", "axis", "level", "score"), ...)
    # Earlier versions had fewer columns, and other words for a status.
    defaults |= {"semantics": "bench", "phase": "all", "status": "ok"}
    types["status"] = str
    known: dict[str, Any] = {name: (types[name], default) for name, default in defaults.items()}
    # Strict: the text `0.5` is no number, and neither is `true`.
    return create_model("Row", __config__=ConfigDict(strict=True, allow_inf_nan=False), **known)
