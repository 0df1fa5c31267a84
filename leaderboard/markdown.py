"""Writes ranked lists as Markdown: the leaderboard of some runs, and what an entry changes, for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tabulate import tabulate

from .boards import Board, Group, groups_of, read_board
from .list_text import COLUMNS, headline, level_text, long, notes_of, rank, sentences, short
from .plain import markdown
from .standing import Standing, preferred, standings

MARKER = "<!-- adaptive-bench ranks -->"  # first line of the comment, so that the next one can replace it
_LONGEST = 4000  # characters of a sentence


def render(tables: Sequence[Path], failures: Sequence[str] = ()) -> str:
    """The leaderboard of one or several `table.json` files, with the work that failed and is missing in them."""
    return written(read_board(tables), failures)


def written(board: Board, failures: Sequence[str] = ()) -> str:
    """As `render`, from a board."""
    parts = ["# Leaderboard"]
    if failures:
        parts += ["**Incomplete.** These failed and are missing below, wholly or in part:"]
        parts.append(_items(" ".join(failure.split()) for failure in failures))
    for group in groups_of(board):
        parts += [part for one in standings(group.board) for part in section(group.name, one)]
    if board.problems:
        parts += ["## Left out", _items(board.problems)]
    return "\n\n".join(parts) + "\n"


def section(name: str, standing: Standing) -> list[str]:
    """The paragraphs of one model at one level."""
    said = [markdown(text, _LONGEST) for text in sentences(standing)]
    notes = _items([*notes_of(standing), COLUMNS])
    return [f"## {markdown(name)}: {markdown(level_text(standing))}", *said, as_table(*long(standing)), notes]


def _items(texts: Iterable[str]) -> str:
    return "\n".join(f"- {markdown(text, _LONGEST)}" for text in texts)


def as_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table that shows its texts literally."""
    body = [[markdown(text, _LONGEST) for text in line] for line in lines]
    # Without numparse: tabulate would write `1.50` as `1.5` and align by the point.
    return tabulate(body, [markdown(text) for text in header], tablefmt="github", disable_numparse=True)


def ranks(after: Sequence[Path], before: Sequence[Path] | None = None) -> str:
    """The list of every model and recipe that changed, at the level that the page shows first.

    Args:
        after: `table.json` files of the entries with the change.
        before: Those of the board as it is; without them every list is shown, without earlier ranks.
    """
    board = read_board(after)
    known = {} if before is None else {_place(one): one for one in groups_of(read_board(before))}
    parts = [MARKER, "## The board with this change"]
    if board.refused:
        parts.append(f"**Refused: {len(board.refused)}.** The build fails until they are corrected or removed.")
        parts.append(_items(board.refused))
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


def _table(group: Group, now: Standing, then: Standing | None, *, compare: bool) -> list[str]:
    title = f"### {markdown(group.name)}: {markdown(level_text(now))}{'' if group.featured else ' (sandbox)'}"
    header, body = short(now, now.lines)
    if compare:
        old = {line.label: rank(line) for line in (then.lines if then else ())}
        header = ["before", *header]
        body = [[old.get(line.label, "new"), *texts] for line, texts in zip(now.lines, body, strict=True)]
    return [title, markdown(headline(now), _LONGEST), as_table(header, body)]
