"""What an entry changes: ranked tables of a board beside those of the board before, as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .frame import Board, read_board
from .grid import as_table
from .groups import Group, groups_of
from .page.ranked import ranked, shown_first
from .plain import markdown
from .site import first_view
from .tables import NONE

MARKER = "<!-- adaptive-bench ranks -->"  # begins the comment, so that the next one can replace it
_LONGEST = 2000
_MOST_REFUSED = 20


def ranks(after: Sequence[Path], before: Sequence[Path] | None = None) -> str:
    """The ranked table of every model and recipe that changed, at the level and on the axis that the page shows first.

    Args:
        after: `table.json` of entries, as they would be.
        before: Of those that the board has; without them every table is shown, and no rank has one before it.
    """
    board = read_board(after)
    axis, phase = first_view(board)
    known = {} if before is None else {_place(one): one for one in groups_of(read_board(before))}
    parts = [MARKER, "## The board with this change", ""]
    parts += _refused(board)
    some = False
    for group in groups_of(board):
        now = shown_first(ranked(group), axis, phase)
        old = known.get(_place(group))
        then = None if old is None else shown_first(ranked(old), axis, phase)
        if now is not None and (before is None or _differs(now, then)):
            parts += [*_table(group, now, then, compare=before is not None), ""]
            some = True
    if not some:
        parts.append("No ranked table changes.")
    return "\n".join(parts).rstrip() + "\n"


def _place(group: Group) -> tuple[str | None, str | None]:
    first = group.board.rows[0].conditions
    return first.backbone, first.recipe


def _differs(now: Mapping[str, Any], then: Mapping[str, Any] | None) -> bool:
    return then is None or (now["lines"], now["said"]) != (then["lines"], then["said"])


def _refused(board: Board) -> Iterator[str]:
    if board.refused:
        yield f"**Refused: {len(board.refused)}.** The build fails until they are corrected or removed."
        yield ""
        yield from (f"- {markdown(text, _LONGEST)}" for text in board.refused[:_MOST_REFUSED])
        yield ""


def _table(group: Group, now: Mapping[str, Any], then: Mapping[str, Any] | None, *, compare: bool) -> Iterator[str]:
    yield f"### {markdown(group.name)}{'' if group.featured else ' (sandbox)'}"
    yield ""
    yield markdown(now["said"], _LONGEST)
    yield ""
    old = {} if then is None else {line["label"]: line for line in then["lines"]}
    header = ["rank", *(["before"] if compare else []), "method", "overall (base 0, dense 100)"]
    header += now["compared"]
    lines = [
        [
            "control" if line["control"] else line["rank"] or NONE,
            *([_before(line, old.get(line["label"]))] if compare else []),
            markdown(line["label"]) + ("" if line["at"] == now["level"] else f" at {line['at']} %"),
            _score(line["overall"]),
            *(NONE if cell is None else _score(cell, cell[6]) for cell in line["cells"]),
        ]
        for line in now["lines"]
    ]
    yield as_table(header, lines)
    if now["earlier"]:
        yield f"\n{markdown(now['earlier'], _LONGEST)}"


def _before(line: Mapping[str, Any], old: Mapping[str, Any] | None) -> str:
    if old is None:
        return "new"
    rank = "control" if old["control"] else old["rank"] or NONE
    same = [old[key] for key in ("overall", "cells", "at")] == [line[key] for key in ("overall", "cells", "at")]
    return rank if same else f"{rank}, other scores"


def _score(texts: Sequence[str], marks: str = "") -> str:
    value, low, high = texts[:3]
    return value if low == NONE else f"{value}{markdown(marks)} [{low}, {high}]"
