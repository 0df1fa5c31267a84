"""Result rows arranged as methods x levels, one grid per task, metric and axis. Tables and pages are made from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tabulate import tabulate

Row = Mapping[str, Any]

AXES = {"net": "saved net FLOPs", "core": "saved core FLOPs", "tokens": "saved tokens", "time": "saved time"}
# lm-eval metrics that are shares; any other metric (perplexity, BLEU) is printed as it is.
_SHARES = {"acc", "acc_norm", "acc_bytes", "exact_match", "em", "f1"}
# Status of a row -> the mark behind its score, and what it means.
_MARKS = {
    "partial": ("*", "not every seed that was asked for reached this level"),
    "inert": ("†", "the dial of this method moves nothing"),
}
_TIME_NOTE = (
    "Saved time: share of plain Hugging Face's time for prompt and new tokens in this setting, read off the method's "
    "own timing at its saved tokens. A method that was not timed here is missing."
)


@dataclass(frozen=True)
class Grid:
    """Scores of one task under one metric, compared at levels of one axis.

    Attributes:
        timing: Where saved time was measured, device included; `None` on the other axes.
        cells: Row by (method label, level); labels and levels in the order in which they came.
    """

    task: str
    metric: str
    axis: str
    timing: str | None = None
    cells: dict[tuple[str, float], Row] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What is compared on what, for example `nano_math: exact_match,strict-match (%) by saved net FLOPs`."""
        where = "" if self.timing is None else f" ({self.timing})"
        return (
            f"{self.task}: {self.metric}{' (%)' if self._is_share else ''} by {AXES.get(self.axis, self.axis)}{where}"
        )

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method for method, _ in self.cells))

    @property
    def levels(self) -> list[float]:
        return sorted({level for _, level in self.cells})

    def scores(self, style: str) -> str:
        """The scores as a table in one of tabulate's styles."""
        return self._table(style, self._score)

    def savings(self, style: str) -> str:
        """What was really saved where the scores were read: tokens / core FLOPs / net FLOPs, in percent."""
        return self._table(style, _saving)

    @property
    def notes(self) -> list[str]:
        """What the marks in this grid mean, and where its savings come from if they are times."""
        found = {row["status"] for row in self.cells.values()}
        marks = [f"{mark} {meaning}." for status, (mark, meaning) in _MARKS.items() if status in found]
        return marks if self.timing is None else [*marks, _TIME_NOTE]

    @property
    def _is_share(self) -> bool:
        return self.metric.split(",")[0] in _SHARES

    def _table(self, style: str, text: Any) -> str:
        header = ["method", *(f"{level:.4g} %" for level in (100 * level for level in self.levels))]
        body = [[method, *(text(self.cells.get((method, level))) for level in self.levels)] for method in self.methods]
        align = ("left", *("right" for _ in self.levels))
        return tabulate(body, header, tablefmt=style, colalign=align, disable_numparse=True)

    def _score(self, row: Row | None) -> str:
        if row is None:
            return ""
        if row["score"] is None:
            return "n/a"
        mark, _ = _MARKS.get(row["status"], ("", ""))
        interval = "" if row["low"] is None else f" [{self._number(row['low'])}, {self._number(row['high'])}]"
        return self._number(row["score"]) + mark + interval

    def _number(self, score: float) -> str:
        return f"{100 * score:.1f}" if self._is_share else f"{score:.4g}"


def grids(rows: Iterable[Row]) -> list[Grid]:
    """Arrange rows; grids, methods and levels keep the order of the rows."""
    found: dict[tuple[str, str, str, str | None], Grid] = {}
    for row in rows:
        key = (row["task"], row["metric"], row["axis"], row.get("timing"))
        found.setdefault(key, Grid(*key)).cells[label(row), row["level"]] = row
    return list(found.values())


def label(row: Row) -> str:
    """The method spec with its semantics, unless that is the default `bench` or part of the spec already."""
    method, semantics = row["method"], row["semantics"]
    return method if semantics == "bench" or method.endswith(f"@{semantics}") else f"{method}@{semantics}"


def _saving(row: Row | None) -> str:
    if row is None:
        return ""
    shares = (row["saved_tokens"], row["saved_core"], row["saved_net"])
    return "n/a" if None in shares else " / ".join(f"{100 * share:.1f}" for share in shares)
