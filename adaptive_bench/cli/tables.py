"""Tables that fit the terminal: columns of prose are wrapped, short ones and paths stay whole."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from tabulate import tabulate

_GAP = 2  # between two columns
_HEADER = 2  # tabulate makes a column so much wider than its header at least
_NARROWEST = 10  # a column of prose


def fitting(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """Rows as a table of at most so many columns of text, as far as words can be wrapped.

    Args:
        width: By default that of the terminal, 80 where there is none.
    """
    if not rows:
        return ""
    room = (width or shutil.get_terminal_size((80, 24)).columns) - _GAP * (len(rows[0]) - 1)
    keys = list(rows[0])
    columns = {key: [str(row.get(key, "")) for row in rows] for key in keys}
    natural = {key: max(len(key) + _HEADER, *(len(text) for text in columns[key])) for key in keys}
    smallest = {
        key: min(natural[key], max(_NARROWEST, len(key) + _HEADER, _longest_word(columns[key]))) for key in keys
    }
    widths = dict(natural)
    while (excess := sum(widths.values()) - room) > 0:
        wide = [key for key in keys if widths[key] > smallest[key]]
        if not wide:
            break
        widest = max(wide, key=lambda key: widths[key])
        widths[widest] = max(smallest[widest], widths[widest] - excess, _second(widths, widest) - 1)
    body = [[_wrapped(column[number], widths[key]) for key, column in columns.items()] for number in range(len(rows))]
    return tabulate(body, keys, tablefmt="simple", disable_numparse=True)


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False) if len(text) > width else text


def _longest_word(texts: Sequence[str]) -> int:
    return max((len(word) for text in texts for word in text.split()), default=0)


def _second(widths: Mapping[str, int], widest: str) -> int:
    """The widest of the other columns that is narrower: where two take turns."""
    return max((width for key, width in widths.items() if key != widest and width < widths[widest]), default=0)
