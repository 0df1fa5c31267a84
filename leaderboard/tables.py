"""What the page shows, as text: every number is written here, once, so that the page only chooses among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from adaptive_bench.metric import metric_of
from adaptive_bench.spec import method_name

from .grid import AXES, COSTS, Grid, grids
from .marks import marks
from .numbers import amount, number, percent, rank
from .paired import RANDOM, is_trained_static
from .provenance import METHOD_FACTS, OTHER_CODE
from .row import Row
from .rows import first_metrics

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
# The texts of a cell, in the order in which the page gets them.
CELL = (
    "score", "low", "high", "kept", "kept_low", "kept_high", "own", "area", "marks", "seeds",
    *(f"saved {name}" for name in (*SAVED, *COSTS)),
    "rank", "behind", "behind_low", "behind_high", "p", "n", "over_random", "over_static",
)  # fmt: skip
Cell = Mapping[str, str]
# Values the page can show instead of the score -> what they are called.
VALUES = {
    "score": "score",
    "kept": "% of the dense score",
    "own": "% of its own score at 0 %",
    "area": "area: mean % of dense up to here",
    "reach": "largest saving that keeps 90 % of dense",
}
FACTS = ("semantics", *METHOD_FACTS.values(), "parameters added", "training tokens", "training FLOPs")
FAMILY_OF_CONTROLS = ("dense", "base", "random_skip", "position_skip", "gated", "static_depth")


def tables_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One table for each task, metric, axis, phase and setting.

    Each of a table's `rows` has `method`, `cells` by level (see `cell`; `None` where there is no such row), `reach`,
    and `to_end`, whether that is the end of what was reached. The table's `best` is the method a column is compared to,
    by level.
    """
    first = first_metrics(rows)
    return [_table(grid, headline=first[grid.task] == grid.metric) for grid in grids(rows)]


def _table(grid: Grid, *, headline: bool) -> dict[str, Any]:
    levels = grid.levels
    against = _marks_of_controls(grid)
    return {
        "task": grid.name,
        "metric": grid.metric,
        "headline": headline,
        "axis": grid.axis,
        "phase": grid.phase,
        "setting": grid.setting,
        "title": grid.title,
        "compared": grid.compared,
        "axis_title": AXES[grid.axis],
        "lower_is_better": metric_of(grid.metric).better == "lower",
        "notes": grid.notes,
        "levels": [f"{100 * level:.4g}" for level in levels],
        "best": [_best(grid, level) for level in levels],
        "rows": [
            _line([grid.cells.get((method, level)) for level in levels], method, against) for method in grid.methods
        ],
    }


def _best(grid: Grid, level: float) -> str | None:
    return next((row.compared_to for (_, at), row in grid.cells.items() if at == level and row.rank_low), None)


def _marks_of_controls(grid: Grid) -> dict[tuple[str, float], str]:
    """By what is said against a control (of `CELL`), and level, the marks of the control: they hold for it too."""
    found: dict[tuple[str, float], str] = {}
    for (name, level), row in grid.cells.items():
        of = "over_random" if name == RANDOM else "over_static" if is_trained_static(name) else None
        if of is not None and row.score is not None:
            known = found.get((of, level), "")  # of several variants of the static control
            found[of, level] = known + "".join(mark for mark, _ in marks(row) if mark not in known)
    return found


def _line(rows: Sequence[Row | None], method: str, against: Mapping[tuple[str, float], str]) -> dict[str, Any]:
    some = next(row for row in rows if row is not None)
    return {
        "method": method,
        "cells": [None if row is None else _marked(cell(row), row.level, against) for row in rows],
        "reach": _maybe(some.keeps_90, percent),
        "to_end": bool(some.keeps_90_to_end),
    }


def _marked(texts: Cell, level: float, against: Mapping[tuple[str, float], str]) -> Cell:
    found = {
        name: f"{texts[name]} {known}"
        for name in ("over_random", "over_static")
        if texts.get(name, NONE) != NONE and (known := against.get((name, level)))
    }
    return {**texts, **found}


def cell(row: Row) -> Cell:
    """The texts of one cell by their names in `CELL`, `NONE` where something is not known; those of tests if tested."""
    written: Callable[[float], str] = lambda score: number(row.metric, score)  # noqa: E731
    return {
        "score": _maybe(row.score, written),
        "low": _maybe(row.low, written),
        "high": _maybe(row.high, written),
        "kept": _maybe(row.kept, percent),
        "kept_low": _maybe(row.kept_low, percent),
        "kept_high": _maybe(row.kept_high, percent),
        "own": _maybe(row.kept_own, percent),
        "area": _maybe(row.area, percent),
        "marks": "".join(mark for mark, _ in marks(row)) if row.score is not None else "",
        "seeds": str(row.seeds),
        **{f"saved {name}": _maybe(getattr(row, key), percent) for name, key in SAVED.items()},
        **{f"saved {name}": _maybe(getattr(row, key), amount) for name, key in COSTS.items()},
        **(tests(row) if row.rank_low is not None else {}),
    }


def packed(cell: Cell) -> list[str]:
    """The texts of a cell in the order of `CELL`, without what is unknown at the end: a large board has many."""
    texts = [cell.get(name, NONE) for name in CELL]
    while texts[-1] == NONE:
        texts.pop()
    return texts


def tests(row: Row) -> dict[str, str]:
    """Of a tested row: its ranks, how far it is behind the best with interval and p, n, and how far it is over random
    skipping and over the trained static control in one text each.
    """
    return {
        "rank": rank(row),
        "behind": difference(row.metric, row.difference),
        "behind_low": difference(row.metric, row.difference_low),
        "behind_high": difference(row.metric, row.difference_high),
        "p": p_value(row.difference_p),
        "n": f"{row.tested_seeds} × {row.tested_documents}",
        "over_random": _over(row, row.over_random, row.over_random_low, row.over_random_high),
        "over_static": _over(row, row.over_static, row.over_static_low, row.over_static_high),
    }


def _over(row: Row, value: float | None, low: float | None, high: float | None) -> str:
    """Without p, for the sake of the page's size: the interval has the confidence at which p was corrected."""
    if value is None:
        return NONE
    return f"{difference(row.metric, value)} [{difference(row.metric, low)}, {difference(row.metric, high)}]"


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
    """Every method once, with what its rows say about its training, and what is known of it by its spec: `facts` by the
    names in `FACTS`.
    """
    known = known or {}
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.label, []).append(row)
    return [_method(some, known.get(some[0].spec, {})) for some in found.values()]


def _method(rows: Sequence[Row], known: Mapping[str, str]) -> dict[str, Any]:
    return {
        "label": rows[0].label,
        "spec": rows[0].spec,
        "control": method_name(rows[0].method) in FAMILY_OF_CONTROLS,
        "causality": known.get("causality", ""),
        "stale": known.get("code") == OTHER_CODE,
        "facts": {
            "semantics": rows[0].semantics,
            **{title: known.get(key, NONE) for key, title in METHOD_FACTS.items()},
            "parameters added": _each((row.parameters_added for row in rows), "{:,}".format),
            "training tokens": _each((row.train_tokens for row in rows), "{:,}".format),
            "training FLOPs": _each((row.train_flops for row in rows), "{:.3g}".format),
        },
    }


def _each(values: Iterable[Any], write: Callable[[Any], str]) -> str:
    return " or ".join(dict.fromkeys(_maybe(value, write) for value in values))


def _maybe(value: Any, write: Callable[[Any], str]) -> str:
    return NONE if value is None else write(value)
