"""Makes text from outside harmless for the place where it is shown; for HTML, Jinja's autoescape does that."""

from __future__ import annotations

import re
import unicodedata

# Characters that Markdown, or GitHub's extension of it, may read as markup.
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#|!~&])")


def plain(text: object, longest: int = 500) -> str:
    """The text as one line, cut to a length, without control, direction or private characters (no terminal escapes)."""
    # A text may have megabytes, of which one line is shown. Some slack, since characters are removed below.
    kept = str(text)[: 4 * longest]
    if not (kept.isascii() and kept.isprintable()):  # skips the slow path, which few of a page's texts need
        letters = (" " if letter in "\n\r\t" else letter for letter in kept)
        # All of category C: control, format (direction marks, joiners), surrogate, private and unassigned.
        kept = "".join(letter for letter in letters if not unicodedata.category(letter).startswith("C"))
    return kept if len(kept) <= longest else kept[: longest - 1] + "…"


def block(text: object, longest: int = 4000) -> str:
    """As `plain`, but line breaks are kept."""
    lines = str(text)[: 4 * longest].splitlines()
    kept = "\n".join(plain(line.replace("\t", "    "), longest) for line in lines)
    return kept if len(kept) <= longest else kept[: longest - 1] + "…"


def markdown(text: str, longest: int = 500) -> str:
    """Text that Markdown shows literally: without links, images, HTML or table cells; cut to a length."""
    escaped = _MARKDOWN.sub(r"\\\1", plain(text, longest))
    # GitHub makes links of bare addresses too: an empty comment inside prevents that, and is not shown.
    return re.sub(r"(?i)(https?|ftp|javascript|data|mailto|www)([:.])", r"\1<!-- -->\2", escaped)
