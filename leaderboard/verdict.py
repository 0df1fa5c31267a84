"""The conclusion in words, written from the rows: nothing in it that an interval does not carry."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_bench.metric import metric_of

from .grid import AXES, Grid, Row, grids, label, marks, percent
from .tables import FAMILY_OF_CONTROLS

_PREFERRED = 0.15  # the saving of the paper's second table
_MOST_TASKS = 4
_MOST_NAMES = 3


def verdict(rows: Sequence[Row], axis: str, phase: str = "all") -> str:
    """One sentence, a clause for each task: the best method at one saving, and whether random skipping is behind it.

    Two methods are told apart only where their intervals do not overlap, which is stricter than a paired test.
    """
    first: dict[str, str] = {}
    for row in rows:
        first.setdefault(row["task"], row["metric"])
    chosen = [
        grid
        for grid in grids(row for row in rows if row["axis"] == axis and row.get("phase", "all") == phase)
        if first[grid.task] == grid.metric
    ]
    clauses = [
        (level, said) for grid in chosen[:_MOST_TASKS] if (level := _level(grid)) and (said := _clause(grid, level))
    ]
    if not clauses:
        return f"No method reached a level above 0 % on the axis {AXES[axis]}."
    one = len({level for level, _ in clauses}) == 1
    at = [f"at {100 * level:.4g} % {AXES[axis]}" for level, _ in clauses]
    if one:
        text = f"{at[0]}, " + "; ".join(said for _, said in clauses)
    else:
        text = "; ".join(f"{where}, {said}" for where, (_, said) in zip(at, clauses, strict=True))
    return text[0].upper() + text[1:] + "."


def _clause(grid: Grid, level: float) -> str:
    reached = [row for (_, at), row in grid.cells.items() if at == level and row["score"] is not None]
    sign = -1 if metric_of(grid.metric).better == "lower" else 1
    ranked = sorted((row for row in reached if not _control(row)), key=lambda row: -sign * row["score"])
    where = f"on {grid.name}"
    if not ranked:
        return ""
    leader, others = ranked[0], ranked[1:]
    random = next((row for row in reached if row["method"].partition("[")[0].partition(" ")[0] == "random_skip"), None)
    keeps = f"{label(leader)} {_keeps(leader, grid)}"
    if random is None:
        return f"{where} {keeps}, with no random skipping to compare with"
    if not _apart(leader, random, sign):
        return f"{where} no method is separated from random skipping (the highest score: {keeps})"
    tied = [label(row) for row in others if not _apart(leader, row, sign)]
    told = f"{where} {keeps}, ahead of random skipping"
    if not others:
        return told
    return f"{told}; {_names(tied)} not told apart from it" if tied else f"{told} and of every other method"


def _level(grid: Grid) -> float | None:
    """Of the levels above nothing that the most methods reach, the one nearest to 15 %."""
    counts = {
        level: sum(
            1 for (_, at), row in grid.cells.items() if at == level and row["score"] is not None and not _control(row)
        )
        for level in grid.levels
        if level > 0
    }
    most = max(counts.values(), default=0)
    near = [level for level, count in counts.items() if count == most]
    return min(near, key=lambda level: abs(level - _PREFERRED)) if most else None


def _control(row: Row) -> bool:
    return str(row["method"]).partition("[")[0].partition(" ")[0] in FAMILY_OF_CONTROLS


def _apart(better: Row, worse: Row, sign: int) -> bool:
    near, far = ("low", "high") if sign > 0 else ("high", "low")
    return better[near] is not None and worse[far] is not None and sign * (better[near] - worse[far]) > 0


def _keeps(row: Row, grid: Grid) -> str:
    reservations = "".join(mark for mark, _ in marks(row))
    if row["kept"] is None:
        return f"scores {grid.score(label(row), row['level'])}"
    interval = "" if row["kept_low"] is None else f" [{percent(row['kept_low'])}, {percent(row['kept_high'])}]"
    return f"keeps {percent(row['kept'])} %{reservations}{interval} of the dense score"


def _names(names: Sequence[str]) -> str:
    if len(names) > _MOST_NAMES:
        return f"{len(names)} other methods are"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) + (" is" if len(names) == 1 else " are")
