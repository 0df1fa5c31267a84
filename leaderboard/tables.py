"""What the page shows, as text: every number is written here, once, so that the page only chooses among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adaptive_bench.metric import metric_of
from adaptive_bench.spec import method_name

from .grid import AXES, Grid, grids, label, marks, number, percent
from .provenance import METHOD_FACTS, OTHER_CODE
from .rows import Row, first_metrics

NONE = "–"
# Name in the page -> key of a row; shares, in percent.
SAVED = {
    "tokens": "saved_tokens",
    "core": "saved_core",
    "net": "saved_net",
    "prefill net": "saved_prefill_net",
    "decode net": "saved_decode_net",
    "claimed": "claimed",
    "claimed − executed": "claimed_minus_executed",
    "projected net": "projected_net",
}
TESTS = 10 + len(SAVED)  # where what `tests` gives begins in a cell
# Values the page can show instead of the score -> what they are called.
VALUES = {
    "score": "score",
    "kept": "% of the dense score",
    "own": "% of its own score at 0 %",
    "area": "area: mean % of dense up to here",
    "reach": "largest saving that keeps 90 % of dense",
}
FACTS = ("semantics", *METHOD_FACTS.values(), "parameters added", "training tokens", "training FLOPs")
FAMILY_OF_CONTROLS = ("dense", "base", "random_skip", "gated", "static_depth")


def tables_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One table for each task, metric, axis, phase and setting, ready for JSON.

    A table's `rows` are lists: method, cells by level, reach, whether it is the end of what was reached. A cell is
    `None` where there is no such row, else text: score, low, high, kept, kept_low, kept_high, own, area, marks, seeds,
    what was saved there in the order of `SAVED` as far as it is known, and where the column was tested what `tests`
    gives. The table's `best` is the method a column is compared to, by level.
    """
    first = first_metrics(rows)
    return [_table(grid, headline=first[grid.task] == grid.metric) for grid in grids(rows)]


def _table(grid: Grid, *, headline: bool) -> dict[str, Any]:
    return {
        "task": grid.name,
        "metric": grid.metric,
        "headline": headline,
        "axis": grid.axis,
        "phase": grid.phase,
        "setting": grid.setting,
        "title": grid.title,
        "axis_title": AXES[grid.axis],
        "lower_is_better": metric_of(grid.metric).better == "lower",
        "notes": grid.notes,
        "levels": [f"{100 * level:.4g}" for level in grid.levels],
        "best": [_best(grid, level) for level in grid.levels],
        "rows": [_line(grid, method) for method in grid.methods],
    }


def _best(grid: Grid, level: float) -> str | None:
    return next((row["compared_to"] for (_, at), row in grid.cells.items() if at == level and row["tie_group"]), None)


def _line(grid: Grid, method: str) -> list[Any]:
    cells = [grid.cells.get((method, level)) for level in grid.levels]
    some = next(row for row in cells if row is not None)
    reach = NONE if some["keeps_90"] is None else percent(some["keeps_90"])
    return [method, [None if row is None else cell(row) for row in cells], reach, bool(some["keeps_90_to_end"])]


def cell(row: Row) -> list[str]:
    """The texts of one cell, see `tables_of`."""
    written: Callable[[float], str] = lambda score: number(row["metric"], score)  # noqa: E731
    tested = tests(row)
    saved = [_maybe(row[key], percent) for key in SAVED.values()]
    while not tested and saved and saved[-1] == NONE:
        saved.pop()  # nothing comes behind it, and a large board has many
    return [
        *(_maybe(row[key], written) for key in ("score", "low", "high")),
        *(_maybe(row[key], percent) for key in ("kept", "kept_low", "kept_high", "kept_own", "area")),
        "".join(mark for mark, _ in marks(row)) if row["score"] is not None else "",
        str(row["seeds"]),
        *saved,
        *tested,
    ]


def tests(row: Row) -> list[str]:
    """Of a tested row: its group, how far it is behind the best with interval and p, n, and the same over random
    skipping in one text; else nothing.
    """
    if row["tie_group"] is None:
        return []
    behind = [difference(row["metric"], row[f"difference{end}"]) for end in ("", "_low", "_high")]
    count = f"{row['tested_seeds']} × {row['tested_documents']}"
    over = [difference(row["metric"], row[f"over_random{end}"]) for end in ("", "_low", "_high")]
    chance = f"{over[0]} [{over[1]}, {over[2]}], p {p_value(row['over_random_p'])}" if over[0] != NONE else NONE
    return [str(row["tie_group"]), *behind, p_value(row["difference_p"]), count, chance]


def difference(metric: str, value: float | None) -> str:
    """A difference of two scores with its sign, in the unit scores are shown in; percentage points for shares."""
    if value is None:
        return NONE
    if metric_of(metric).unit == "share":
        return f"{100 * value:+.1f}".replace("-0.0", "+0.0")
    return f"{value:+.3g}"


def p_value(p: float | None) -> str:
    """A p-value with three decimals."""
    return NONE if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def methods_of(rows: Sequence[Row], known: Mapping[str, Mapping[str, str]] | None = None) -> list[dict[str, Any]]:
    """Every method once, with what its rows say about its training, and what is known of it by its spec: `facts` in the
    order of `FACTS`.
    """
    known = known or {}
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(label(row), []).append(row)
    return [
        {
            "label": name,
            "control": method_name(some[0]["method"]) in FAMILY_OF_CONTROLS,
            "causality": known.get(_spec(name), {}).get("causality", ""),
            "stale": known.get(_spec(name), {}).get("code") == OTHER_CODE,
            "facts": [
                some[0]["semantics"],
                *(known.get(_spec(name), {}).get(key, NONE) for key in METHOD_FACTS),
                _each(some, "parameters_added", "{:,}".format),
                _each(some, "train_tokens", "{:,}".format),
                _each(some, "train_flops", "{:.3g}".format),
            ],
        }
        for name, some in found.items()
    ]


def _spec(name: str) -> str:
    """A label without the name of a run."""
    return name.partition(" (")[0] + ("@paper" if name.endswith(")@paper") else "")


def _each(rows: Sequence[Row], key: str, write: Callable[[Any], str]) -> str:
    return " or ".join(dict.fromkeys(_maybe(row[key], write) for row in rows))


def _maybe(value: Any, write: Callable[[Any], str]) -> str:
    return NONE if value is None else write(value)
