"""What a table of the paper and ours say of each other, and the two as plain values for a terminal, Markdown or a page.

How many pairs of values stand in the paper's order is counted where both sides tell them apart: the paper by its
standard deviations, ours by 95 % intervals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from adaptive_bench.errors import UsageError

from .frame import Board, read_board
from .paper import MISSING, Beside, Line, Value, beside, is_paper, numbers
from .provenance import variants_of
from .tables import NONE
from .wording import capitalised

_KINDS = {"written": "generative", "likelihood": "log-likelihood", "seconds": "timed"}


def said_of(found: Beside) -> list[str]:
    """In what order values stand, on which model and tasks, and what was not measured."""
    if all(line.label is None for line in found.lines):
        return [f"Table {found.table['table']} is {MISSING}. {commands_of(found)}"]
    return [text for part in (_orders, _conditions, _missing) for text in part(found)]


def commands_of(found: Beside) -> str:
    """What makes the table: on the generated tasks, and on the paper's models."""
    presets = found.table["presets"]
    parts = [
        f"{where}: {' and '.join(f'`{one}`' for one in presets[kind])}"
        for kind, where in (("nano", "On the nano model"), ("paper", "On the paper's models"))
        if presets[kind]
    ]
    return ". ".join(parts) + "."


def groups_of(found: Beside) -> Iterator[tuple[str, range]]:
    """Columns that belong together, with their name."""
    start = 0
    for name, count in found.table["groups"] or [("", len(found.columns))]:
        yield name, range(start, start + count)
        start += count


def _orders(found: Beside) -> Iterator[str]:
    """How many pairs of rows stand in the order that the paper has."""
    for name, columns in groups_of(found):
        same = other = unknown = 0
        for column in columns:
            for (a, a_theirs, a_ours), (b, b_theirs, b_ours) in combinations(_measured(found, column), 2):
                theirs = _their_order(a_theirs, b_theirs, lower=a_ours.lower_is_better)
                if theirs is None or a.name == b.name or not _comparable(a, b):
                    continue
                ours = a_ours.ahead_of(b_ours)
                same, other, unknown = same + (ours == theirs), other + (ours == (not theirs)), unknown + (ours is None)
        if count := same + other + unknown:
            pairs = f"{count} pair{'' if count == 1 else 's'} of values"
            yield capitalised(
                f"{name}: "
                * bool(name)
                + f"of {pairs} that the paper tells apart, {same} stand in the same order here, "
                f"{other} in the other one, and {unknown} are not told apart (their 95 % intervals overlap)."
            )


def _measured(found: Beside, column: int) -> list[tuple[Line, tuple[float, float], Value]]:
    """Rows that both have a value of."""
    return [
        (line, them, us)
        for line in found.lines
        if (them := line.theirs[column]) is not None and (us := line.ours[column]) is not None
    ]


def _their_order(one: tuple[float, float], other: tuple[float, float], *, lower: bool) -> bool | None:
    """Whether the paper has one ahead of the other; `None` within their standard deviations."""
    apart = abs(one[0] - other[0]) > one[1] + other[1]
    return (one[0] > other[0]) != lower if apart else None


def _comparable(one: Line, other: Line) -> bool:
    """Whether rows are of one section; and variants of one method of the same semantics, which would differ else."""
    method, semantics = _variant(one)
    return one.section == other.section and (method != _variant(other)[0] or semantics == _variant(other)[1])


def _variant(line: Line) -> tuple[str, bool]:
    """The method of a row, and whether in its paper's semantics."""
    return re.split(r"[\[@,]", line.label or "", maxsplit=1)[0], is_paper(line)


def _conditions(found: Beside) -> Iterator[str]:
    """Whose model each side has, which tasks a mean of ours is over, and which stand in for the paper's."""
    theirs, ours = found.table["model"], found.model
    if theirs is not None and (ours is None or ours.rpartition("/")[2] != theirs.rpartition("/")[2]):
        yield f"The paper's model is {theirs}, ours {ours}: orders are compared, not numbers."
    told = [f"{_KINDS[kind]} tasks are {_listed(tasks)}" for kind, tasks in found.means.items()]
    if told:
        yield f"Here the {', the '.join(told)}."
    if found.stand_ins:
        stand = ", ".join(f"{ours} for {theirs}" for theirs, ours in found.stand_ins.items())
        yield f"Generated tasks stand in for the paper's: {stand}."


def _missing(found: Beside) -> Iterator[str]:
    """Rows and columns without a record."""
    rows = list(dict.fromkeys(line.name for line in found.lines if line.label is None))
    if rows:
        yield f"{capitalised(MISSING)}: {_listed(rows)}."
    columns = [
        title
        for column, title in enumerate(found.columns)
        if all(line.ours[column] is None for line in found.lines) and any(line.theirs[column] for line in found.lines)
    ]
    if columns:
        yield f"No method here has a value of: {'; '.join(columns)}."


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"


def paper_beside(tables: Sequence[Path], number: int) -> tuple[list[dict[str, Any]], list[str]]:
    """A table of the paper beside every model of some runs, as plain values: `table`, `caption`, `source`, `model`,
    `columns`, `groups` of them (`name`, `first`, `columns`), `rows` (`name`, `label`, and of each column `theirs` and
    `ours` as texts), `said` and `commands`. And what was left out of the board, one sentence each.

    Args:
        tables: `table.json` of runs; without any the paper stands alone.
        number: Of the paper's table.

    Raises:
        UsageError: The paper has no such table.
    """
    if number not in numbers():
        raise UsageError(f"The paper's tables are {', '.join(map(str, numbers()))}, got {number}.")
    board = read_board(tables) if tables else None
    return beside_board(board, number), list(board.problems) if board else []


def beside_board(board: Board | None, number: int) -> list[dict[str, Any]]:
    """As `paper_beside`, of a board that was read before."""
    found = beside(board.rows if board else (), number, variants_of(board.folders) if board else None)
    return [_as_values(one) for one in found]


def contents() -> list[dict[str, str]]:
    """Every table with what makes it."""
    return [
        {"table": str(one.table["table"]), "about": one.table["caption"], "commands": commands_of(one)}
        for number in numbers()
        for one in beside([], number)
    ]


def _as_values(found: Beside) -> dict[str, Any]:
    return {
        "table": found.table["table"],
        "caption": found.table["caption"],
        "source": found.table["source"],
        "model": found.model,
        "columns": list(found.columns),
        "groups": [
            {"name": name, "first": places.start, "columns": [found.table["columns"][place] for place in places]}
            for name, places in groups_of(found)
        ],
        "rows": [
            {
                "name": line.name,
                "label": line.label,
                "theirs": [text or NONE for text in line.shown],
                "ours": [NONE if value is None else value.shown for value in line.ours],
            }
            for line in found.lines
        ],
        "said": said_of(found),
        "commands": commands_of(found),
    }
