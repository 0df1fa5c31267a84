"""Formats text for the terminal: tables wrap columns of prose and keep short columns and paths whole."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from adaptive_bench import registry
from adaptive_bench.progress import say

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
        width: Most characters of a line; by default the terminal's width, here as below.
        indent: Text that every line but the first begins with.
    """
    room = width or terminal_width()
    # `textwrap` breaks at ASCII white space only. What would not fit a line anyway may break.
    whole = re.sub(rf"`[^`\n]{{1,{room - 2}}}`", lambda found: found[0].replace(" ", _NO_BREAK), text)
    filled = textwrap.fill(whole, room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return filled.replace(_NO_BREAK, " ")


def paragraph(text: str) -> str:
    """Wrap text into lines of a readable width that fit the terminal."""
    return wrapped(text, min(_WIDEST, terminal_width()))


def fitting(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """Rows as a table without empty columns that fits the width, as far as wrapping its widest columns allows."""
    every = {key: [str(one.get(key, "")) for one in rows] for row in rows for key in row}
    columns = {key: texts for key, texts in every.items() if any(texts)}
    widest = max(_widths(columns, sys.maxsize), default=0)
    # The widest columns are narrowed together, one character at a time.
    while widest > _NARROWEST and not _fits(columns, widest, width):
        widest -= 1
    widths = _widths(columns, widest)
    body = [list(map(_cell, row, widths)) for row in zip(*columns.values(), strict=True)]
    return plain_table(body, [_cell(key, room - _HEADER) for key, room in zip(columns, widths, strict=True)])


def listed(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """List named things as a table if columns of prose are wide enough to read, else as a paragraph each.

    Args:
        rows: The name first, then a sentence, then further facts.
    """
    if _fits({key: [str(row[key]) for row in rows] for key in rows[0]}, _READABLE, width):
        return fitting(rows, width)
    lines, room = list[str](), (width or terminal_width()) - len(_INDENT)
    for row in rows:
        (_, name), (_, sentence), *rest = row.items()
        facts = " · ".join(f"{key} {value}" for key, value in rest if str(value))
        about = wrapped(sentence, room).splitlines() + wrapped(facts, room, _INDENT).splitlines()
        lines += [name, *(_INDENT + line for line in about)]
    return "\n".join(lines)


def in_parts(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows of many short columns; columns for which the terminal has no room follow below, with the first one again."""
    import pandas

    first = next(iter(rows[0]))
    # pandas repeats the index, which is the first column, before every part.
    return str(pandas.DataFrame(rows).set_index(first).rename_axis(None).to_string(line_width=terminal_width()))


def plain_table(rows: Any, headers: Any, **how: Any) -> str:
    """A table of texts, which are not read as numbers; see `tabulate`."""
    from tabulate import tabulate  # with its tables of character widths it imports slower than help may print

    usual: dict[str, Any] = {"tablefmt": "simple", "disable_numparse": True}
    return str(tabulate(rows, headers, **usual | how))


def numbers_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column has names, aligned left; the others have numbers, aligned right."""
    return plain_table(rows, header, colalign=("left", *["right"] * (len(header) - 1)))


def _widths(columns: Mapping[str, Sequence[str]], widest: int) -> list[int]:
    """Widths of the columns with wrapped texts of at most `widest` characters, unless a single word is longer."""
    found = []
    for key, texts in columns.items():
        natural = max(_HEADER + len(key), *map(len, texts))
        words = [len(word) for text in texts for word in text.split()] + [_HEADER + len(word) for word in key.split()]
        found.append(min(natural, max(widest, *words)))
    return found


def _fits(columns: Mapping[str, Sequence[str]], widest: int, width: int | None) -> bool:
    return sum(_widths(columns, widest)) + _GAP * (len(columns) - 1) <= (width or terminal_width())


def _cell(text: str, width: int) -> str:
    return wrapped(text, width) if len(text) > width else text


def percent(share: float | None) -> str:
    """A share in per cent, without the sign."""
    return "n/a" if share is None else f"{100 * share:.1f}"


def pasteable(command: str) -> str:
    """A command that can be pasted, also into a shell that does not find `adaptive-bench` by its name."""
    started = Path(sys.argv[0])
    if shutil.which("adaptive-bench"):
        return command
    is_script = started.name == "adaptive-bench"
    program = shlex.join([str(started)] if is_script else [sys.executable, "-m", "adaptive_bench"])
    return program + command.removeprefix("adaptive-bench")


def waiting(what: str) -> None:
    """Say what the command does before its own progress display begins."""
    say(f"{what} ...", sys.stderr)


def load_libraries(plugins: Iterable[Path] | None = None) -> None:
    """Import the libraries that take seconds and say so, unless they are imported already; then load plugin files."""
    if not ("torch" in sys.modules and "lm_eval" in sys.modules):
        waiting("Loading PyTorch, transformers and lm-eval")
        import adaptive_bench.runs  # noqa: F401
    if plugins:
        registry.load_plugins(plugins)
