"""Formats text for the terminal: tables wrap columns of prose and keep short columns and paths whole."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adaptive_bench.progress import say

PROGRAM = "adaptive-bench"
READING_TABLES = "Reading the tables; those of entries are computed from their measurements"
_GAP = 2  # characters between two columns
_HEADER = 2  # tabulate makes a column at least this much wider than its header
_NO_BREAK = "\N{NO-BREAK SPACE}"
_NARROWEST, _READABLE = 10, 30  # characters of a column of prose: the fewest at all, and the fewest to be readable
_WIDEST = 100  # longer lines are hard to read
_INDENT = "  "


def terminal_width() -> int:
    """Number of columns of the terminal; 80 without a terminal."""
    return shutil.get_terminal_size((80, 24)).columns


def wrapped(text: str, width: int | None = None, indent: str = "") -> str:
    """Wrap a paragraph. Words are never broken, nor is text in backticks, because it is meant for copying.

    Args:
        width: Most characters of a line; by default the terminal's width.
        indent: Text that every line but the first begins with.
    """
    room = width or terminal_width()
    whole = re.sub(rf"`[^`\n]{{1,{room - 2}}}`", lambda found: found[0].replace(" ", _NO_BREAK), text)
    filled = textwrap.fill(whole, room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return filled.replace(_NO_BREAK, " ")


def paragraph(text: str) -> str:
    """Wrap text into lines of a readable width that fit the terminal."""
    return wrapped(text, min(_WIDEST, terminal_width()))


def fitting(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """Rows as a table that fits the width, as far as wrapping at words allows.

    Args:
        width: Most characters of a line; by default the terminal's width.
    """
    if not rows:
        return ""
    columns = _columns(rows)
    widths, smallest = _natural(columns), _smallest(columns)
    while sum(widths.values()) > _room(rows, width):
        wide = [key for key in columns if widths[key] > smallest[key]]
        if not wide:
            break
        widths[max(wide, key=lambda key: widths[key])] -= 1
    body = [[_cell(column[number], widths[key]) for key, column in columns.items()] for number in range(len(rows))]
    return plain_table(body, [_cell(key, widths[key] - _HEADER) for key in columns])


def fits(rows: Sequence[Mapping[str, Any]], width: int | None = None, narrowest: int = _NARROWEST) -> bool:
    """Whether `fitting` can keep to the width without a column of prose narrower than `narrowest` characters."""
    return not rows or sum(_smallest(_columns(rows), narrowest).values()) <= _room(rows, width)


def listed(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """List named things: as a table if columns of prose are wide enough to read, else as a paragraph each.

    Args:
        rows: The name first, then a sentence, then further facts.
        width: Most characters of a line; by default the terminal's width.
    """
    if fits(rows, width, _READABLE):
        return fitting(rows, width)
    lines, room = list[str](), (width or terminal_width()) - len(_INDENT)
    for row in rows:
        (_, name), (_, sentence), *rest = row.items()
        facts = " · ".join(f"{key} {value}" for key, value in rest if str(value))
        about = wrapped(sentence, room).splitlines() + wrapped(facts, room, _INDENT).splitlines()
        lines += [name, *(_INDENT + line for line in about)]
    return "\n".join(lines)


def lines_of(rows: Sequence[tuple[str, str]]) -> str:
    """Names with a sentence each, one line for each name; text that does not fit the terminal is cut off."""
    longest = max((len(name) for name, _ in rows), default=0)
    room = max(terminal_width() - longest - _GAP, len("..."))
    cut = (text if len(text) <= room else textwrap.shorten(text, room, placeholder=" ...") for _, text in rows)
    return "\n".join(f"{name:<{longest + _GAP}}{text}".rstrip() for (name, _), text in zip(rows, cut, strict=True))


def in_parts(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """Rows of many short columns as tables below each other; each has the first column and as many others as fit.

    Args:
        width: Most characters of a line; by default the terminal's width.
    """
    if not rows:
        return ""
    room, widths = width or terminal_width(), _natural(_columns(rows))
    first, *_ = widths
    parts = _parts(widths, room)
    while room > 0 and len(narrower := _parts(widths, room - 1)) == len(parts):
        parts, room = narrower, room - 1  # as narrow as possible, so that the tables have about the same width
    tables = ([{key: row.get(key, "") for key in (first, *part)} for row in rows] for part in parts)
    return "\n\n".join(plain_table(table, "keys") for table in tables)


def _parts(widths: Mapping[str, int], room: int) -> list[list[str]]:
    """All columns but the first, split into as few parts as fit the room."""
    (first, *keys), parts = widths, [list[str]()]
    for key in keys:
        taken = widths[first] + sum(_GAP + widths[other] for other in (*parts[-1], key))
        if parts[-1] and taken > room:
            parts.append([])
        parts[-1].append(key)
    return parts


def plain_table(rows: Any, headers: Any, **how: Any) -> str:
    """A table of texts, which are not read as numbers; see `tabulate`."""
    from tabulate import tabulate  # with its tables of character widths it imports slower than help may print

    usual: dict[str, Any] = {"tablefmt": "simple", "disable_numparse": True}
    return str(tabulate(rows, headers, **usual | how))


def numbers_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column has names, aligned left; the others have numbers, aligned right."""
    return plain_table(rows, header, colalign=("left", *["right"] * (len(header) - 1)))


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    return {key: [str(row.get(key, "")) for row in rows] for key in rows[0]}


def _room(rows: Sequence[Mapping[str, Any]], width: int | None) -> int:
    return (width or terminal_width()) - _GAP * (len(rows[0]) - 1)


def _natural(columns: Mapping[str, Sequence[str]]) -> dict[str, int]:
    return {key: max(_HEADER + max(map(len, key.split("\n"))), *map(len, texts)) for key, texts in columns.items()}


def _smallest(columns: Mapping[str, Sequence[str]], narrowest: int = _NARROWEST) -> dict[str, int]:
    def longest_word(texts: Sequence[str]) -> int:
        return max((len(word) for text in texts for word in text.split()), default=0)

    natural = _natural(columns)
    return {
        key: min(natural[key], max(narrowest, _HEADER + longest_word([key]), longest_word(texts)))
        for key, texts in columns.items()
    }


def _cell(text: str, width: int) -> str:
    return wrapped(text, width) if len(text) > width else text


def percent(share: float | None) -> str:
    """A share in per cent, without the sign."""
    return "n/a" if share is None else f"{100 * share:.1f}"


def pasteable(command: str) -> str:
    """A command that can be pasted: its `adaptive-bench` is replaced by what this process was started with."""
    started, found = Path(sys.argv[0]), shutil.which(PROGRAM)
    if started.name == "__main__.py":
        program = f"{shlex.quote(sys.executable)} -m adaptive_bench"
    elif started.name != PROGRAM or started.parent == Path():
        program = PROGRAM
    else:
        program = PROGRAM if found and started.resolve() == Path(found).resolve() else shlex.quote(str(started))
    return program + command.removeprefix(PROGRAM)


def waiting(what: str) -> None:
    """Say what the command does before its own progress display begins."""
    say(f"{what} ...", sys.stderr)


def load_libraries() -> None:
    """Import the libraries that take seconds and say so, unless they are imported already."""
    if "torch" in sys.modules and "lm_eval" in sys.modules:
        return
    waiting("Loading PyTorch, transformers and lm-eval")
    import adaptive_bench.runs  # noqa: F401
