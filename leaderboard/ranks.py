"""Writes what an entry changes: a board's lists beside the ranks before, as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from .frame import Board, read_board
from .groups import Group, groups_of
from .headline import headline
from .markdown import as_table
from .plain import markdown
from .standing import Standing, preferred, standings
from .table_cells import level_text, rank, short

MARKER = "<!-- adaptive-bench ranks -->"  # first line of the comment, so that the next one can replace it
_LONGEST = 2000


def ranks(after: Sequence[Path], before: Sequence[Path] | None = None) -> str:
    """The list of every model and recipe that changed, at the level that the page shows first.

    Args:
        after: `table.json` files of the entries with the change.
        before: Those of the board as it is; without them every list is shown, without earlier ranks.
    """
    board = read_board(after)
    known = {} if before is None else {_place(one): one for one in groups_of(read_board(before))}
    parts = [MARKER, "## The board with this change", *_refused(board)]
    for group in groups_of(board):
        now = preferred(standings(group.board))
        old = known.get(_place(group))
        then = None if old is None else preferred(standings(old.board))
        # Compared as they are shown: a change in a digit that no table prints is no change of ranks.
        if now is not None and (before is None or then is None or short(now, now.lines) != short(then, then.lines)):
            parts += _table(group, now, then, compare=before is not None)
    if not any(part.startswith("### ") for part in parts):
        parts.append("No list changes.")
    return "\n\n".join(parts) + "\n"


def _place(group: Group) -> tuple[str | None, str | None]:
    # By what makes a group, since names of groups depend on which others the board has.
    first = group.board.rows[0].conditions
    return first.backbone, first.recipe


def _refused(board: Board) -> Iterator[str]:
    if board.refused:
        yield f"**Refused: {len(board.refused)}.** The build fails until they are corrected or removed."
        yield "\n".join(f"- {markdown(text, _LONGEST)}" for text in board.refused)


def _table(group: Group, now: Standing, then: Standing | None, *, compare: bool) -> list[str]:
    title = f"### {markdown(group.name)}: {markdown(level_text(now))}{'' if group.featured else ' (sandbox)'}"
    header, body = short(now, now.lines)
    if compare:
        old = {line.label: rank(line) for line in (then.lines if then else ())}
        header = ["before", *header]
        body = [[old.get(line.label, "new"), *texts] for line, texts in zip(now.lines, body, strict=True)]
    return [title, markdown(headline(now), _LONGEST), as_table(header, body)]
