"""Reads a method's idea, sources and deviations from the docstring of its file, without importing the file."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from adaptive_bench import registry

from .plain import plain

_LABEL = re.compile(r"^(Idea|Papers?|Source, equations, deviations|Source|Equations|Deviations[^:\n]*):", re.MULTILINE)
# Ends in a letter, a digit or a slash, so that the full stop after a link is not part of it.
LINK = re.compile(r"https://[A-Za-z0-9.\-]+\.[A-Za-z]{2,}/[A-Za-z0-9._~%/\-]*[A-Za-z0-9/]", re.ASCII)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_SENTENCES, _LONGEST = 3, 3000


@dataclass(frozen=True)
class Described:
    """The description of a method.

    Attributes:
        title: First line of the docstring.
        idea: At most three sentences.
        sources: The papers or sources that it names, one text each.
        deviations: Deviations from the paper, one text each.
        file: Name of the method's file.
        own: Whether the method belongs to this package.
    """

    title: str = ""
    idea: str = ""
    sources: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()
    file: str = ""
    own: bool = False


def described(name: str) -> Described:
    """The description of a method; empty if the method is not registered here or its file cannot be read."""
    file = registry.file_of("methods", name) if name in registry.names("methods") else None
    if file is None:
        return Described()
    own = not registry.is_foreign("methods", name)
    return _of_docstring(_docstring(file), file.name, own)


def _docstring(file: Path) -> str:
    try:
        return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    except (OSError, ValueError, SyntaxError, RecursionError):  # the page works without a description
        return ""


def _of_docstring(text: str, file: str, own: bool) -> Described:
    title, _, rest = text.partition("\n\n")
    # With one group in the pattern: the text before the first label, then label and text in turn.
    _, *parts = _LABEL.split(rest)
    labelled = dict(zip(parts[::2], parts[1::2], strict=True))
    # A text ends at the next label or after its paragraph; deviations may be a list of paragraphs.
    first = {label: _one_line(body.strip().partition("\n\n")[0]) for label, body in labelled.items()}
    return Described(
        plain(title, _LONGEST),
        " ".join(_SENTENCE.split(first.get("Idea", ""))[:_SENTENCES]),
        tuple(first[label] for label in ("Paper", "Papers", "Source") if first.get(label)),
        tuple(_items(next((body for label, body in labelled.items() if label.startswith("Deviations")), ""))),
        plain(file, 100),
        own,
    )


def _items(text: str) -> Iterator[str]:
    """The items of a list, or the whole text as one item."""
    for item in re.split(r"^\* ", textwrap.dedent(text.strip()), flags=re.MULTILINE):
        known = _one_line(item.split("\n\n")[0]).rstrip(";")
        if known and known != "none.":
            yield known


def _one_line(text: str) -> str:
    return plain(" ".join(text.split()), _LONGEST).strip()
