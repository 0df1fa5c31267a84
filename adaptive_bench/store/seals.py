"""Seals: what the files of a record were when its run ended, so that a reader notices what came after.

A file that ends with a digest of what it says tells of its own edits. It does not tell that it was made anew under the
same name, that another one was put in its place, or that it is gone: that takes somebody who knows what was there. A
run's manifest does, by record and by name of the file.

`env.json` and a few more are added to where another run of equal keys goes on with a record (`_GROWING`): of them a
seal says only that they are there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Literal, NamedTuple

from adaptive_bench.store.files import DOCUMENTS, NOT_SEALED, NUMBER, OURS, Files

_LONG = (DOCUMENTS, "train.jsonl")
Seals = Mapping[str, str]  # name of a file -> its seal, empty where the file need only be there
_GROWING = {"env.json", "status.json", "calibration.json", "behaviour.json"}
_DIGITS = 16  # as of a key
_DAMAGED = "-"  # no digest: what was damaged already when the run ended is no finding later
_FILE = re.compile(OURS, re.ASCII)
_POINT = re.compile(rf"{NUMBER}(?:\.json|{re.escape(DOCUMENTS)})", re.ASCII)
_PART = re.compile(rf"(\S+):([0-9a-f]{{{_DIGITS}}}|-|)", re.ASCII)


class Broken(NamedTuple):
    """A file that is not what was sealed."""

    name: str
    how: Literal["is missing", "changed"]


def seals_of(files: Files, savings: Collection[float] | None = None) -> Seals:
    """The seals of a record's files as they are now.

    Args:
        savings: What points are sealed of those that were measured, by what they were asked for; by default all.
    """
    names = [name for name in files.names() if _FILE.fullmatch(name) and name not in NOT_SEALED]
    if savings is not None:
        points = {f"{saving:g}{end}" for saving in savings for end in (".json", DOCUMENTS)}
        names = [name for name in names if name in points or _POINT.fullmatch(name) is None]
    return {name: _seal(files, name) for name in names}


def broken(files: Files, seals: Seals, *, deep: bool = False) -> Iterator[Broken]:
    """Those files that are not as they were sealed.

    Args:
        deep: Read documents and the log of a training too. Else only whether they are there is asked: measured points
            have a digest of their documents, which whoever reads these holds them to.
    """
    names = set(files.names())
    for name, seal in seals.items():
        if name not in names:
            yield Broken(name, "is missing")
        elif (deep or not name.endswith(_LONG)) and seal != _seal(files, name):
            yield Broken(name, "changed")


def as_text(seals: Seals) -> str:
    """One line, as a manifest holds it: a list of 10,000 records is read at once."""
    return " ".join(f"{name}:{seal}" for name, seal in seals.items())


def from_text(text: str) -> Seals:
    """Read back what `as_text` gave.

    Raises:
        ValueError: It is something else.
    """
    parts = [_PART.fullmatch(part) for part in text.split()]
    if None in parts:
        raise ValueError(f"no seals: {text[:60]!r}")
    return {part[1]: part[2] for part in parts if part is not None}


def _seal(files: Files, name: str) -> str:
    if name in _GROWING:
        return ""
    is_long = name.endswith(_LONG)
    digest = hashlib.sha256(files.content(name) or b"").hexdigest() if is_long else files.seal(name)
    return _DAMAGED if digest is None else digest[:_DIGITS]
