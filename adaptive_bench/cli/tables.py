"""Text that fits the terminal: in tables columns of prose are wrapped, short ones and paths stay whole."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

_GAP = 2  # between two columns
_HEADER = 2  # tabulate makes a column so much wider than its header at least
_NO_BREAK = "\N{NO-BREAK SPACE}"
_NARROWEST, _READABLE = 10, 30  # a column of prose
_INDENT = "  "


def terminal_width() -> int:
    """Columns of the terminal, 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def wrapped(text: str, width: int | None = None, indent: str = "") -> str:
    """A paragraph; words are never broken, nor what stands in backticks, for it is meant for copying.

    Args:
        width: By default that of the terminal.
        indent: What every line but the first begins with.
    """
    room = width or terminal_width()
    whole = re.sub(rf"`[^`\n]{{1,{room - 2}}}`", lambda found: found[0].replace(" ", _NO_BREAK), text)
    filled = textwrap.fill(whole, room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return filled.replace(_NO_BREAK, " ")


def fitting(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """Rows as a table of at most so many columns of text, as far as words can be wrapped.

    Args:
        width: By default that of the terminal.
    """
    if not rows:
        return ""
    keys = list(rows[0])
    columns = _columns(rows)
    widths, smallest = _natural(columns), _smallest(columns)
    room = _room(rows, width)
    while (excess := sum(widths.values()) - room) > 0:
        wide = [key for key in keys if widths[key] > smallest[key]]
        if not wide:
            break
        widest = max(wide, key=lambda key: widths[key])
        widths[widest] = max(smallest[widest], widths[widest] - excess, _second(widths, widest) - 1)
    body = [[_cell(column[number], widths[key]) for key, column in columns.items()] for number in range(len(rows))]
    headers = [_cell(key, widths[key] - _HEADER) for key in keys]
    return _simple(body, headers)


def fits(rows: Sequence[Mapping[str, Any]], width: int | None = None, narrowest: int = _NARROWEST) -> bool:
    """Whether `fitting` can keep to the width with columns of prose that are not narrower than so many characters."""
    return not rows or sum(_smallest(_columns(rows), narrowest).values()) <= _room(rows, width)


def listed(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """Named things: as a table where columns of prose are wide enough to be read, else as a paragraph each.

    Args:
        rows: The name first, then a sentence, then what else is to be said.
        width: By default that of the terminal.
    """
    if fits(rows, width, _READABLE):
        return fitting(rows, width)
    return "\n".join(_paragraph(row, width) for row in rows)


def lines_of(rows: Sequence[tuple[str, str]], width: int | None = None) -> str:
    """Names with a sentence each, one line a name; what does not fit the width is cut off.

    Args:
        width: By default that of the terminal.
    """
    longest = max((len(name) for name, _ in rows), default=0)
    room = (width or terminal_width()) - longest - _GAP
    return "\n".join(f"{name:<{longest + _GAP}}{_cut(sentence, room)}".rstrip() for name, sentence in rows)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else textwrap.shorten(text, max(room, len("...")), placeholder=" ...")


def _paragraph(row: Mapping[str, Any], width: int | None) -> str:
    (_, name), (_, sentence), *rest = row.items()
    facts = " · ".join(f"{key} {value}" for key, value in rest if str(value))
    room = (width or terminal_width()) - len(_INDENT)
    return "\n".join([name, *(_INDENT + line for line in _lines(sentence, room) + _lines(facts, room, _INDENT))])


def _lines(text: str, width: int, indent: str = "") -> list[str]:
    return wrapped(text, width, indent).splitlines()


def in_parts(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """Rows of many short columns as tables one below the other; each has the first column and as many others as fit.

    Args:
        width: By default that of the terminal.
    """
    if not rows:
        return ""
    room, widths, (first, *_) = width or terminal_width(), _natural(_columns(rows)), rows[0]
    parts = _parts(widths, room)
    while room > 0 and len(narrower := _parts(widths, room - 1)) == len(parts):
        parts, room = narrower, room - 1  # of about the same width
    tables = ([{key: row.get(key, "") for key in (first, *part)} for row in rows] for part in parts)
    return "\n\n".join(_simple(table, "keys") for table in tables)


def _parts(widths: Mapping[str, int], room: int) -> list[list[str]]:
    """Columns but the first, in as many parts as it takes."""
    (first, *keys), parts = widths, [list[str]()]
    for key in keys:
        taken = widths[first] + sum(_GAP + widths[other] for other in (*parts[-1], key))
        if parts[-1] and taken > room:
            parts.append([])
        parts[-1].append(key)
    return parts


def _simple(rows: Any, headers: Any) -> str:
    from tabulate import tabulate  # with the widths of all characters it takes longer to import than help to print

    return str(tabulate(rows, headers, tablefmt="simple", disable_numparse=True))


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    return {key: [str(row.get(key, "")) for row in rows] for key in rows[0]}


def _room(rows: Sequence[Mapping[str, Any]], width: int | None) -> int:
    return (width or terminal_width()) - _GAP * (len(rows[0]) - 1)


def _natural(columns: Mapping[str, Sequence[str]]) -> dict[str, int]:
    return {key: max(_HEADER + max(map(len, key.split("\n"))), *map(len, texts)) for key, texts in columns.items()}


def _smallest(columns: Mapping[str, Sequence[str]], narrowest: int = _NARROWEST) -> dict[str, int]:
    natural = _natural(columns)
    return {
        key: min(natural[key], max(narrowest, _HEADER + _longest_word([key]), _longest_word(texts)))
        for key, texts in columns.items()
    }


def _cell(text: str, width: int) -> str:
    return wrapped(text, width) if len(text) > width else text


def _longest_word(texts: Sequence[str]) -> int:
    return max((len(word) for text in texts for word in text.split()), default=0)


def _second(widths: Mapping[str, int], widest: str) -> int:
    """The widest of the other columns that is narrower: where two take turns."""
    return max((width for key, width in widths.items() if key != widest and width < widths[widest]), default=0)
