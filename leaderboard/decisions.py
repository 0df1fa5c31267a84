"""What each method loses with the decisions of other tokens: its score beside that with them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from tabulate import tabulate

from adaptive_bench.metric import metric_of
from adaptive_bench.spec import method_name
from adaptive_bench.tables.shuffled import TOLERANCE

from .grid import Grid
from .numbers import number
from .row import Row

WIDTH = 80  # of a terminal
_GAP = 2  # between two columns
_HEADER = 2  # tabulate makes a column so much wider than its header at least
PREFERRED = 0.15  # the level that is shown where there is room for one: the saving of the paper's second table
_TITLE = "loses with the decisions of other tokens: the score minus that of the same model with them"
_APART = (
    "≠ the net savings of the two differ by more than {:.0f} points{}, or the control was not measured at one dial "
    "value."
)


_FLOOR = "position_skip"  # looks at no content: what it loses with the decisions of other tokens is no choice of tokens
FLOOR = f"{_FLOOR}[trained=true]"
_NO_FLOOR = f"no floor: {FLOOR} (by position alone) was not measured."


def is_floor(row: Row) -> bool:
    """Whether a row says what a model that was trained to skip by position alone loses with the decisions of other
    tokens.
    """
    known = row.decisions_low is not None and row.decisions_high is not None and not is_apart(row)
    return known and method_name(row.method) == _FLOOR and "trained=true" in row.method


def decisions(
    grid: Grid,
    levels: Sequence[float] | None = None,
    broken: Callable[[str, int], str] = lambda label, room: label,
) -> list[str]:
    """Title, table and notes, nothing where no control was measured; one line for each method and level.

    Args:
        levels: Those that are shown; `None`: the one nearest to `PREFERRED`.
        broken: How a method's label is written in so many columns of a terminal.
    """
    known = [row for row in grid.cells.values() if row.decisions_worth is not None and row.score is not None]
    if not known:
        return []
    nearest = min({row.level for row in known}, key=lambda level: (abs(level - PREFERRED), level))
    chosen = [row for row in known if row.level in (levels or [nearest])]
    body = [
        [
            row.label,
            f"{100 * row.level:.4g} %",
            number(grid.metric, row.reached()),
            "" if row.shuffled_score is None else number(grid.metric, row.shuffled_score),
            _worth(grid, row),
        ]
        for row in chosen
    ]
    header = ["method", "level", "score", "shuffled", "loses"]
    widths = [
        max(len(name) + _HEADER, *map(len, column))
        for name, column in zip(header, zip(*body, strict=True), strict=True)
    ]
    room = max(1, WIDTH - sum(_GAP + width for width in widths[1:]))
    body = [[broken(label, room), *others] for label, *others in body]
    table = tabulate(body, header, tablefmt="simple", colalign=("left", *["right"] * 4), disable_numparse=True)
    by_net = grid.axis == "net" and grid.phase == "all"
    other = "" if by_net else f" (levels here are {grid.axis_text}; this mark goes by net FLOPs of all phases)"
    notes = [textwrap.fill(_APART.format(100 * TOLERANCE, other), WIDTH)] if any(map(is_apart, chosen)) else []
    return [_TITLE, table, *notes, *([] if any(map(is_floor, chosen)) else [_NO_FLOOR])]


def is_apart(row: Row) -> bool:
    """Whether method and control save too different amounts at one dial value to be called the same, or were not
    measured at one.
    """
    return row.shuffled_apart is None or abs(row.shuffled_apart) > TOLERANCE


def _worth(grid: Grid, row: Row) -> str:
    """The difference with its interval, in percentage points where the metric is a share."""
    assert row.decisions_worth is not None
    mark = "≠" if is_apart(row) else ""
    text = f"{_signed(grid, row.decisions_worth)}{mark}"
    if row.decisions_low is None or row.decisions_high is None:
        return text
    return f"{text} [{_signed(grid, row.decisions_low)}, {_signed(grid, row.decisions_high)}]"


def _signed(grid: Grid, difference: float) -> str:
    if metric_of(grid.metric).unit == "share":
        return f"{100 * difference:+.1f}"
    return f"{difference:+.3g}"
