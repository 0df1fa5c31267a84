"""Renders the list that a run ends with, as plain text for a terminal of 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from .boards import groups_of, read_board
from .list_text import COLUMNS, MOST_LINES, by_task, first_lines, headline, level_text, long, notes_of, sentences, short
from .standing import Standing, preferred, standings

WIDTH = 80
_NARROWEST = 12  # least width of the column of methods' names


def render(tables: Sequence[Path], *, wide: bool = False) -> str:
    """The list of every model and recipe in some `table.json` files, at the level nearest to 15 %.

    Args:
        tables: The `table.json` files.
        wide: Show all levels and lines, with savings and the scores of every task, however wide that is.
    """
    board = read_board(tables)
    groups = groups_of(board)
    parts = [textwrap.fill(text, WIDTH) for text in board.problems]
    for group in groups:
        found = standings(group.board)
        first = preferred(found)
        name = f"{group.name}: " if len(groups) > 1 else ""
        if wide:
            parts += [_wide(one, name) for one in found]
        elif first is not None:
            parts.append(_narrow(first, name, len(found) - 1))
    return "\n\n".join(parts)


def _narrow(standing: Standing, name: str, levels: int) -> str:
    lines = first_lines(standing)
    if not lines:
        return "\n\n".join([_title(standing, name), textwrap.fill(headline(standing), WIDTH), *_by_task(standing)])
    header, body = _fitting(*short(standing, lines), ["skipped", "time"])
    hidden = sum(line.score is not None for line in standing.lines) - len(lines)
    more = [f"{hidden} more rows"] * (hidden > 0) + [f"{levels} other level{'s' if levels > 1 else ''}"] * (levels > 0)
    notes = [*notes_of(standing), f"{' and '.join(['Scores by task', *more])}: --all."]
    return "\n\n".join(
        [
            _title(standing, name),
            "\n".join(textwrap.fill(one, WIDTH) for one in sentences(standing)),
            _table(header, body),
            "\n".join(textwrap.fill(note, WIDTH) for note in notes),
        ]
    )


def _wide(standing: Standing, name: str) -> str:
    header, body = long(standing)
    notes = [*notes_of(standing), COLUMNS]
    parts = [_title(standing, name), "\n".join(sentences(standing)), _table(header, body, 10**6)]
    return "\n\n".join([*parts, "\n".join(textwrap.fill(note, WIDTH) for note in notes)])


def _title(standing: Standing, name: str) -> str:
    tasks = ", ".join(f"{task} ({metric.partition(',')[0]})" for task, metric in standing.tasks)
    return textwrap.fill(f"{name}{level_text(standing)}: {tasks}", WIDTH)


def _by_task(standing: Standing) -> list[str]:
    """The table of unscaled scores, for a list without a scale."""
    every, lines = by_task(standing)
    # Tasks are dropped from the last one; the method and the first task stay.
    header, body = _fitting(every, lines[:MOST_LINES], every[:1:-1])
    hidden = header != every or len(body) < len(lines)
    return [_table(header, body), *(["More rows or tasks: --all."] if hidden else [])]


def _fitting(
    header: Sequence[str], body: Sequence[Sequence[str]], less_needed: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """The table, with less needed columns dropped until methods' names have room."""
    titles, lines = list(header), [list(line) for line in body]
    for name in less_needed:
        # tabulate puts two spaces between columns.
        if WIDTH - sum(one + 2 for one in _widths(titles, lines)) >= _NARROWEST:
            break
        place = titles.index(name)
        for texts in (titles, *lines):
            del texts[place]
    return titles, lines


def _widths(header: Sequence[str], body: Sequence[Sequence[str]]) -> list[int]:
    """Widths of all columns except the methods' names."""
    return [max(len(line[at]) for line in (header, *body)) for at, name in enumerate(header) if name != "method"]


def _table(header: Sequence[str], body: Sequence[Sequence[str]], width: int = WIDTH) -> str:
    """A table with columns as wide as their texts; methods' names are broken if they do not fit into `width`."""
    at = list(header).index("method")
    widths = [max(len(line[place]) for line in (header, *body)) for place in range(len(header))]
    room = width - sum(one + 2 for one in _widths(header, body))
    widths[at] = min(widths[at], max(room, _NARROWEST))
    names = ["\n".join(broken(line[at], widths[at])) for line in body]
    lines = [[*line[:at], name, *line[at + 1 :]] for line, name in zip(body, names, strict=True)]
    # tabulate would keep columns free beside a title of its own, so header and rule are lines like others.
    lines = [list(header), ["-" * one for one in widths], *lines]
    align = ["left" if place <= at else "right" for place in range(len(header))]
    return tabulate(lines, tablefmt="plain", disable_numparse=True, colalign=align)


def broken(method: str, width: int) -> list[str]:
    """A method's label in lines of at most `width` characters, broken between parameters if possible."""
    lines = [""]
    # `gateskip[shape=scalar,...]@paper`: after a bracket or comma, before `@`, and only if needed after `=`.
    parts = re.split(r"(?<=[\[,])|(?=@)", method)
    for part in (one for whole in parts for one in ([whole] if len(whole) <= width else re.split(r"(?<==)", whole))):
        for start in range(0, len(part), width):
            piece = part[start : start + width]
            if len(lines[-1]) + len(piece) <= width:
                lines[-1] += piece
            else:
                lines.append(piece)
    return lines
