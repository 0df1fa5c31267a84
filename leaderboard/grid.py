"""Result rows arranged as methods x levels: one grid per task, metric, axis and phase, and of those for each set of
conditions under which rows are comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tabulate import tabulate

from adaptive_bench.metric import metric_of
from adaptive_bench.spec import method_name
from adaptive_bench.tables.comparable import Conditions, differences
from adaptive_bench.tables.made_with import environments

from .marks import marks
from .numbers import amount, number, percent, rank
from .row import Row

Place = tuple[str, str, str, str, str | None, Conditions]  # task, metric, axis, phase, setting

AXES = {
    "net": "saved net FLOPs",
    "core": "saved core FLOPs",
    "tokens": "saved tokens",
    "claimed": "claimed saving",
    "projected": "saved net FLOPs, projected",
    "bytes": "saved bytes",
    "time": "saved time",
}
STATIC = ("static_depth", "layerskip")  # methods that skip the same layers for every token
_AXIS_NOTES = {
    "bytes": "Saved bytes: what a written token, fed alone, reads less than in the dense model in fp32, weights and "
    "K,V together; reckoned from the ledger.",
    "time": "Saved time: share of plain Hugging Face's time for prompt and new tokens in this setting, read off the "
    "method's own timing at its saved tokens. A method that was not timed here is missing.",
    "claimed": "Claimed saving: the share of token-branches that the method's dial says it skips. What was measured "
    "there may differ.",
    "projected": "A projection, not a measurement: the decisions made in the small model, priced with the layers, "
    "head, gates and probes of this shape.",
}
_PHASE_NOTES = {
    "prefill": "Prefill: what is read in one pass, prompts and, in log-likelihood tasks, the given answers.",
    "decode": "Decode: tokens fed one by one while writing. An answer's first token is written in prefill.",
}
# Column of the details -> key of a row; all are shares.
_DETAILS = {
    "tokens": "saved_tokens",
    "core": "saved_core",
    "net": "saved_net",
    "prefill net": "saved_prefill_net",
    "decode net": "saved_decode_net",
    "claimed": "claimed",
    "claimed - executed": "claimed_minus_executed",
    "projected net": "projected_net",
}
# Column of the details -> key of a row; what a token costs there, as it is.
COSTS = {"FLOPs/token": "flops_per_token", "bytes/token": "bytes_per_token", "ms/token": "ms_per_token"}
# Column of the facts of a method and its training -> key of a row, and how it is written.
_TRAINING: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "may skip": ("eligible", str),
    "parameters added": ("parameters_added", lambda count: f"{count:,}"),
    "training tokens": ("train_tokens", lambda count: f"{count:,}"),
    "training FLOPs": ("train_flops", lambda flops: f"{flops:.3g}"),
}


@dataclass(frozen=True)
class Grid:
    """Scores of one task under one metric, compared at levels of one axis.

    Attributes:
        phase: The tokens the axis counts: `all`, `prefill` or `decode`.
        setting: Where saved time was measured, device included, or the shape it is projected onto; else `None`.
        conditions: What its rows were measured under.
        apart: What of that differs from the other grids of the task, in words; empty where nothing does.
        cells: Row by (method label, level); labels and levels in the order in which they came.
    """

    task: str
    metric: str
    axis: str
    phase: str = "all"
    setting: str | None = None
    conditions: Conditions = field(default_factory=Conditions)
    apart: str = ""
    cells: dict[tuple[str, float], Row] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        """What it is a grid of; no other has the same."""
        return self.task, self.metric, self.axis, self.phase, self.setting, self.conditions

    @property
    def compared(self) -> str:
        """What is compared, for example `nano_math: exact_match,strict-match (%)`."""
        known = metric_of(self.metric)
        return f"{self.name}: {self.metric}" + (
            " (%)" if known.unit == "share" else " ↓" if known.better == "lower" else ""
        )

    @property
    def title(self) -> str:
        """And on what: `... by saved net FLOPs`."""
        return f"{self.compared} by {self.axis_text}"

    @property
    def axis_text(self) -> str:
        """What the levels are shares of: `saved net FLOPs`."""
        phase = "" if self.phase == "all" else f" of {self.phase}"
        where = "" if self.setting is None else f" ({self.setting})"
        return f"{AXES.get(self.axis, self.axis)}{phase}{where}"

    @property
    def name(self) -> str:
        """The task, with what tells this grid from the others of it."""
        return f"{self.task} ({self.apart})" if self.apart else self.task

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method for method, _ in self.cells))

    @property
    def levels(self) -> list[float]:
        return sorted({level for _, level in self.cells})

    def scores(
        self, style: str, levels: Sequence[float] | None = None, shown: Callable[[str], str] = lambda method: method
    ) -> str:
        """The scores as a table in one of tabulate's styles.

        Args:
            levels: Some of the levels; all by default.
            shown: How a method's label is written.
        """
        chosen = self.levels if levels is None else levels
        header = ["method", *(f"{100 * level:.4g} %" for level in chosen)]
        body = [[shown(method), *(self.score(method, level) for level in chosen)] for method in self.methods]
        return _table(header, body, style)

    def score(self, method: str, level: float) -> str:
        """Score, marks and interval of a cell; empty where there is no such row."""
        row = self.cells.get((method, level))
        if row is None:
            return ""
        if row.score is None:
            return "n/a"
        marked = number(self.metric, row.score) + "".join(mark for mark, _ in marks(row))
        return marked if row.interval is None else f"{marked} {self._ends(row.interval)}"

    def _ends(self, interval: tuple[float, float]) -> str:
        low, high = (number(self.metric, end) for end in interval)
        return f"[{low}, {high}]"

    def details(self, style: str) -> str:
        """What was saved where the scores were read, in percent of the dense model, one line per method and level:
        measured pooled and by phase, claimed and projected; what a token costs there; and what is kept of the dense
        score.
        """
        reached = [(cell, row) for cell, row in self.cells.items() if row.score is not None]
        columns = {
            name: key for name, key in _DETAILS.items() if any(getattr(row, key) is not None for _, row in reached)
        }
        costs = {name: key for name, key in COSTS.items() if any(getattr(row, key) is not None for _, row in reached)}
        header = ["method", "level", *columns, *costs, "kept"]
        body = [
            [
                method,
                f"{100 * level:.4g} %",
                *(_percent(getattr(row, key)) for key in columns.values()),
                *("" if (value := getattr(row, key)) is None else amount(value) for key in costs.values()),
                self._kept(row),
            ]
            for (method, level), row in reached
        ]
        return _table(header, body, style)

    def training(self, style: str) -> str:
        """What each method's training took and what it adds; empty where nothing is known."""
        rows = {method: row for (method, _), row in self.cells.items()}
        columns = {
            name: how
            for name, how in _TRAINING.items()
            if any(getattr(row, how[0]) is not None for row in rows.values())
        }
        body = [
            [method, *("" if (value := getattr(row, key)) is None else write(value) for key, write in columns.values())]
            for method, row in rows.items()
        ]
        return _table(["method", *columns], body, style) if columns else ""

    @property
    def notes(self) -> list[str]:
        """What the marks in this grid mean, and what its axis and phase are where that needs saying."""
        found = dict.fromkeys(mark for row in self.cells.values() if row.score is not None for mark in marks(row))
        notes = [f"{mark} {meaning}." for mark, meaning in found]
        if metric_of(self.metric).better == "lower":
            notes.append("↓ lower is better.")
        if len(made := environments(row.made_with for row in self.cells.values())) > 1:
            notes.append(f"Not all of it was made with the same versions on the same device: {'; '.join(made)}.")
        notes += [note for note in (self._sites, self._static) if note]
        return notes + [table[key] for table, key in self._explained if key in table]

    @property
    def by_sites(self) -> dict[str, list[str]]:
        """Methods by where they may let tokens skip, as far as rows say."""
        found: dict[str, list[str]] = {}
        for method, sites in self.eligible.items():
            found.setdefault(sites, []).append(method)
        return found

    @property
    def eligible(self) -> dict[str, str]:
        """Where methods let tokens skip, of those that do anywhere as far as rows say."""
        found: dict[str, set[str]] = {}
        for (method, _), row in self.cells.items():
            if row.eligible not in (None, "", "none"):
                found.setdefault(method, set()).add(row.eligible)
        return {method: " or ".join(sorted(sites)) for method, sites in found.items()}

    @property
    def _sites(self) -> str:
        """Who may skip where, unless all may skip at the same sites."""
        by_sites = self.by_sites
        if len(by_sites) < 2:
            return ""
        told = "; ".join(f"{sites}: {', '.join(methods)}" for sites, methods in by_sites.items())
        return f"Methods differ in their eligible sites ({told}): a lead may come from the sites alone."

    @property
    def _static(self) -> str:
        """Who decides nothing per token though it is no control."""
        found = [method for method in self.methods if method_name(method) in STATIC[1:]]
        return f"Not deciding per token, like static_depth: {', '.join(found)}." if found else ""

    @property
    def ranks(self) -> str:
        """The methods with their ranks, one line for each tested level, from the best on."""
        lines = []
        for level in self.levels:
            tested = [
                (row.rank_low, row.rank_high, method, rank(row))
                for (method, at), row in self.cells.items()
                if at == level and row.rank_low is not None
            ]
            if tested:
                told = ", ".join(f"{method} {ranks}" for *_, method, ranks in sorted(tested))
                lines.append(f"* {100 * level:.4g} %: {told}")
        return "\n".join(lines)

    @property
    def _explained(self) -> list[tuple[Mapping[str, str], str]]:
        return [(_AXIS_NOTES, self.axis), (_PHASE_NOTES, self.phase)]

    def _kept(self, row: Row) -> str:
        """Share of the dense model's score, in percent."""
        dense = [row.score for (method, _), row in self.cells.items() if method == "dense"]
        scores = [score for score in dense if score is not None]
        return _percent(metric_of(self.metric).retention(row.reached(), scores[0])) if scores else ""


def grids(rows: Iterable[Row]) -> list[Grid]:
    """Arrange rows; grids, methods and levels keep the order of the rows; what is not comparable stands together."""
    rows = list(rows)
    of_task: dict[str, list[Conditions]] = {}
    for row in rows:
        of_task.setdefault(row.task, []).append(row.conditions)
    apart = {task: differences(conditions) for task, conditions in of_task.items()}
    found: dict[Place, Grid] = {}
    for row in rows:
        setting = row.projected_shape if row.axis == "projected" else row.timing
        key = (row.task, row.metric, row.axis, row.phase, setting, row.conditions)
        grid = found.setdefault(key, Grid(*key, apart[row.task][row.conditions]))
        grid.cells[row.label, row.level] = row
    order = {place: number for number, place in enumerate(dict.fromkeys(key[:-1] for key in found))}
    return [found[key] for key in sorted(found, key=lambda key: order[key[:-1]])]


def _percent(share: float | None) -> str:
    return "" if share is None else percent(share)


def _table(header: Sequence[str], body: Sequence[Sequence[str]], style: str) -> str:
    align = ("left", *("right" for _ in header[1:]))
    return tabulate(body, header, tablefmt=style, colalign=align, disable_numparse=True)


def as_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose first column is text and whose others are numbers."""
    align = ("left", *("right" for _ in header[1:]))
    return tabulate(lines, header, tablefmt="github", colalign=align, disable_numparse=True)
