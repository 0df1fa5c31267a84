"""A table of the GateSkip paper beside ours: its values as it prints them, ours from records, by saved tokens as there.

Nothing is said of a value that no record has: it is "not measured here".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any

from adaptive_bench.metric import metric_of

from .marks import marks
from .numbers import number
from .row import Row
from .rows import first_metrics

AXIS = "tokens"
MISSING = "not measured here"
# Generated tasks that stand in for the paper's where its own were not asked.
STAND_INS = {
    "gsm8k": "nano_math", "csqa": "nano_qa", "csqa_ll": "nano_qa_ll", "lambada": "nano_text", "mmlu_gen": "nano_qa",
}  # fmt: skip
_WRITTEN, _LIKELIHOOD = ("exact_match", "em"), ("acc", "acc_norm")
BEYOND = "not in the paper"
_OTHER = ("quantize", "temperature")  # in a recipe: rows of their own
_FORM = re.compile(r"(?:^|, )quantize (\w+)")
DEFAULT = "(default)"  # in the name of a row of ablations
_BYTES = 4e-6  # megabytes of a parameter in fp32, as the paper counts


@dataclass(frozen=True)
class Value:
    """A value of ours, in the unit it is shown in.

    Attributes:
        low, high: The ends of its interval, of a mean the means of the ends; `None` where there is none.
        shown: As text, with marks.
        lower_is_better: Of its metric.
    """

    mean: float
    low: float | None
    high: float | None
    shown: str
    lower_is_better: bool = False

    def ahead_of(self, other: Value) -> bool | None:
        """Whether it is better than another one with intervals apart; `None` where they are not."""
        if None in (self.low, self.high, other.low, other.high):
            return None
        above = self.low > other.high  # type: ignore[operator]
        below = self.high < other.low  # type: ignore[operator]
        return above != self.lower_is_better if above or below else None


@dataclass(frozen=True)
class Line:
    """A row of the paper with one of our methods, or with none.

    Attributes:
        name: As the paper calls it.
        label: Our method; `None` where nothing of the row is measured here.
        shown: The paper's texts by column, empty where it has no value.
        ours: By column.
        section: Of the paper's table; rows of other sections are not held to each other.
    """

    name: str
    label: str | None
    shown: tuple[str, ...]
    ours: tuple[Value | None, ...]
    section: str | None = None

    @property
    def theirs(self) -> tuple[tuple[float, float] | None, ...]:
        """The paper's means and standard deviations."""
        parts = [text.partition(" ± ") for text in self.shown]
        return tuple((float(mean), float(deviation or 0)) if mean else None for mean, _, deviation in parts)


@dataclass(frozen=True)
class Beside:
    """A table of the paper beside what one model has here.

    Attributes:
        table: The paper's, as `paper_tables` gives it.
        model: Ours; `None` where there are no records.
        columns: Titles, their group before them where the table has groups.
        stand_ins: What was asked here by what the paper asked.
        means: The tasks behind a mean, by its kind: `written` or `likelihood`.
    """

    table: Mapping[str, Any]
    model: str | None
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    means: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@cache
def paper_tables() -> list[dict[str, Any]]:
    """Tables 1 to 13: number, caption, column groups, columns and rows. Values are the paper's own texts,
    mean ± standard deviation where it gives both; an empty text where it gives nothing.
    """
    tables: list[dict[str, Any]] = json.loads(files(__package__).joinpath("paper.json").read_text(encoding="utf-8"))
    return tables


def form_of(row: Row) -> str:
    """What the weights were quantized as; empty where they were not."""
    found = _FORM.search(row.conditions.recipe or "")
    return found[1] if found else ""


def _is_plain(row: Row) -> bool:
    """Whether weights are as they were trained, and answers not drawn at random."""
    return not any(f"{one} " in (row.conditions.recipe or "") for one in _OTHER)


def numbers() -> list[int]:
    """Of the tables that there are."""
    return [int(table["table"]) for table in paper_tables()]


def beside(rows: Iterable[Row], table: int, variants: Mapping[str, str] | None = None) -> list[Beside]:
    """A table of the paper beside the rows of every model; beside nothing where no row is on the paper's axis.

    Args:
        table: Its number in the paper.
        variants: By spec the same method without what it was tuned to; others stand for themselves.
    """
    (theirs,) = [one for one in paper_tables() if one["table"] == table]
    ours = [row for row in rows if row.axis == AXIS and row.phase == "all"]
    by_model: dict[str | None, list[Row]] = {}
    pools = theirs["model"] is None or theirs.get("across_models", False)  # a table over models takes them all
    for row in ours:
        by_model.setdefault(None if pools else row.conditions.model, []).append(row)
    found = [_Ours(theirs, some, variants or {}).beside(model) for model, some in by_model.items()]
    return found or [_Ours(theirs, [], {}).beside(None)]


class _Ours:
    """Looks up values of a table."""

    def __init__(self, table: Mapping[str, Any], rows: Sequence[Row], variants: Mapping[str, str]) -> None:
        self.table, self.variants = table, variants
        self.first = first_metrics(rows)
        self.rows = rows
        self.stand_ins: dict[str, str] = {}
        self.means: dict[str, tuple[str, ...]] = {}

    def beside(self, model: str | None) -> Beside:
        lines = [line for row in self.table["rows"] for line in self._lines(row)]
        lines += self._beyond()
        if model is None and self.rows:
            model = ", ".join(dict.fromkeys(row.conditions.model or "" for row in self.rows)) or None
        lines = [line for line in lines if _is_beside_its_like(line, lines)]
        return Beside(self.table, model, tuple(_titles(self.table)), tuple(lines), self.stand_ins, self.means)

    def _lines(self, row: Mapping[str, Any]) -> list[Line]:
        ours = [one for one in self.rows if self._is_of(one, row)]
        blank = Line(row["name"], None, tuple(row["values"]), (None,) * len(row["values"]), row["section"])
        return self._found(blank, ours) or [blank]

    def _beyond(self) -> list[Line]:
        """Rows of the table's methods on models, or in forms, that the paper has none of: another family, 8 bits."""
        rows = self.table["rows"]
        known, of_forms = {row["method"] for row in rows}, any("recipe" in row for row in rows)
        by_model: dict[str, list[Row]] = {}
        for one in self.rows:
            asked = form_of(one) if of_forms else self.table["model"] is None and _is_plain(one)
            if asked and self._variant(one) in known and not any(self._is_of(one, row) for row in rows):
                by_model.setdefault(one.conditions.model or "", []).append(one)
        columns = len(self.table["columns"])
        blank = Line(BEYOND, None, ("",) * columns, (None,) * columns)
        return [
            replace(line, label=f"{line.label} of {model}") if self.table["model"] is None else line
            for model, some in by_model.items()
            for line in self._found(blank, some)
        ]

    def _found(self, blank: Line, rows: Sequence[Row]) -> list[Line]:
        """A line for each of our methods, and each of the forms it was measured in."""
        found = []
        for label, form in dict.fromkeys((one.label, form_of(one)) for one in rows):
            some = [one for one in rows if (one.label, form_of(one)) == (label, form)]
            ours = tuple(self._value(some, *ask) for ask in self.table["asks"])
            if any(value is not None for value in ours):
                found.append(replace(blank, label=f"{label}, {form}" if form else label, ours=ours))
        return found

    def _variant(self, ours: Row) -> str:
        return self.variants.get(ours.spec, ours.spec).partition("@")[0]

    def _is_of(self, ours: Row, row: Mapping[str, Any]) -> bool:
        wanted = row.get("recipe")
        measured = any(one in (ours.conditions.recipe or "") for one in wanted) if wanted else _is_plain(ours)
        return measured and self._variant(ours) == row["method"] and row.get("model", "").lower() == self._named(ours)

    def _named(self, ours: Row) -> str:
        """What the table's rows of this method call the model: the longest of their names that is in its own."""
        name, method = (ours.conditions.model or "").lower(), self._variant(ours)
        known = {row.get("model", "").lower() for row in self.table["rows"] if row["method"] == method}
        return max((one for one in known if one in name), key=len, default="")

    def _value(self, rows: Sequence[Row], what: str | None, level: float) -> Value | None:
        kind, _, name = (what or "").partition(" ")
        if kind == "megabytes":
            added = [row.parameters_added for row in rows if row.parameters_added is not None]
            return _plain(_BYTES * added[0], exact=True) if added else None
        if kind in ("written", "likelihood", "seconds"):
            wanted = _LIKELIHOOD if kind == "likelihood" else _WRITTEN
            tasks = [task for task, metric in self.first.items() if metric.partition(",")[0] in wanted]
            self.means[kind] = tuple(tasks)
        else:
            tasks = [task] if (task := self._task(name)) is not None else []
        found = [_asked_most(rows, task, metric, level) for task in tasks if (metric := self._metric(kind, task))]
        known = [row for row in found if row is not None and row.score is not None]
        if not known or len(known) < len(tasks):
            return None
        if kind == "seconds":
            seconds = [row.seconds for row in known if row.seconds is not None]
            return _plain(sum(seconds), lower_is_better=True) if len(seconds) == len(known) else None
        return _mean(known)

    def _task(self, name: str) -> str | None:
        """The task itself, or what stands in for it here."""
        if name in self.first or not name:
            return name or None
        other = STAND_INS.get(name)
        if other in self.first:
            assert other is not None
            self.stand_ins[name] = other
            return other
        return None

    def _metric(self, kind: str, task: str) -> str | None:
        """The metric of a task that a column asks for; bits per byte of a text stand for its perplexity."""
        if kind not in ("perplexity", "acc"):
            return self.first[task]
        there = {row.metric for row in self.rows if row.task == task}
        wanted = (f"{kind},none",) if kind == "acc" else ("perplexity,none", "bits_per_byte,none")
        return next((metric for metric in wanted if metric in there), None)


def _is_beside_its_like(line: Line, lines: Sequence[Line]) -> bool:
    """Whether a default is in the semantics of the ablations of its section, and of any other row that it stands."""
    if line.label is None or DEFAULT not in line.name:
        return True
    beside = [one for one in lines if one.section == line.section and one.label and DEFAULT not in one.name]
    return not beside or any(is_paper(one) == is_paper(line) for one in beside)


def is_paper(line: Line) -> bool:
    """Whether a row of ours is in the semantics of its method's paper."""
    return "@paper" in (line.label or "")


def _asked_most(rows: Sequence[Row], task: str, metric: str, level: float) -> Row | None:
    """Of rows of a method on a task the one with the most documents."""
    some = [row for row in rows if (row.task, row.metric, row.level) == (task, metric, level)]
    return max(some, key=lambda row: row.documents, default=None)


def _mean(rows: Sequence[Row]) -> Value:
    known = metric_of(rows[0].metric)
    unit = 100.0 if known.unit == "share" else 1.0
    score = fmean(row.reached() for row in rows)
    ends = [row.interval for row in rows]
    whole = [end for end in ends if end is not None]
    low, high = (unit * fmean(side) for side in zip(*whole, strict=True)) if len(whole) == len(ends) else (None, None)
    said = "".join(dict.fromkeys(mark for row in rows for mark, _ in marks(row)))
    shown = number(rows[0].metric, score) + said
    return Value(unit * score, low, high, shown, known.better == "lower")


def _plain(value: float, *, lower_is_better: bool = False, exact: bool = False) -> Value:
    end = value if exact else None
    return Value(value, end, end, f"{value:.4g}", lower_is_better)


def _titles(table: Mapping[str, Any]) -> Iterator[str]:
    groups = [name for name, count in table["groups"] for _ in range(count)]
    for place, column in enumerate(table["columns"]):
        yield f"{groups[place]}, {column}" if groups else column
