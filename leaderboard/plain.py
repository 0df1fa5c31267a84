"""Text from outside, made harmless for where it is shown. Jinja's autoescape does it for HTML."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#|!~&])")


def plain(text: object, longest: int = 500) -> str:
    """One line without control, direction or private characters (terminal escapes among them), cut at a length."""
    kept = str(text)[: 4 * longest]
    if not (kept.isascii() and kept.isprintable()):  # nearly every text is, and pages have thousands
        letters = (" " if letter in "\n\r\t" else letter for letter in kept)
        kept = "".join(letter for letter in letters if not unicodedata.category(letter).startswith("C"))
    return kept if len(kept) <= longest else kept[: longest - 1] + "…"


def block(text: object, longest: int = 4000) -> str:
    """As `plain`, but lines stay."""
    lines = str(text)[: 4 * longest].splitlines()
    kept = "\n".join(plain(line.replace("\t", "    "), longest) for line in lines)
    return kept if len(kept) <= longest else kept[: longest - 1] + "…"


def cell(value: Any) -> Any:
    """A value of a spreadsheet: text that a program would run as a formula starts with an apostrophe."""
    return _cell(value) if isinstance(value, str) else value


@lru_cache(maxsize=10_000)  # a board of thousands of rows has few texts
def _cell(value: str) -> str:
    text = plain(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def markdown(text: str, longest: int = 500) -> str:
    """Text that Markdown shows as it is: no link, image, HTML, table cell or automatic link; cut at a length."""
    escaped = _MARKDOWN.sub(r"\\\1", plain(text, longest))
    return re.sub(r"(?i)(https?|ftp|javascript|data|mailto|www)([:.])", r"\1<!-- -->\2", escaped)
