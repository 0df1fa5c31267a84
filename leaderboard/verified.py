"""`verified.json` of an entry: when it was measured again, and how many of its points held.

It stands beside the files of the entry and belongs to none of its digests: whoever merges it vouches for it. It holds
for the very entry whose `entry.json` it names by digest; of any other it says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from adaptive_bench.errors import UsageError
from adaptive_bench.store import atomic

from . import entry
from .plain import plain
from .rows import Rejected, read_json

FILE_NAME = "verified.json"
SCHEMA = 2  # 1 counted as differing what another seed may score
UNVERIFIED = "not measured again"
_COUNTS = ("points", "hold", "alike", "trained", "documents", "equal")
_MOST = 10**9


def recorder(folder: Path) -> Callable[[Sequence[Mapping[str, Any]]], Path]:
    """What keeps the findings of `leaderboard verify` beside an entry: it takes the points that were measured again, as
    `--json` prints them, and gives the file.

    Raises:
        UsageError: The folder is no entry.
    """
    if not (folder / entry.FILE_NAME).is_file():
        raise UsageError(
            f"What was verified is recorded beside an entry, but {str(folder)!r} is none. Submit it first."
        )
    return partial(_record, folder)


def _record(folder: Path, found: Sequence[Mapping[str, Any]]) -> Path:
    about = folder / entry.FILE_NAME
    known = [one for one in found if one["verdict"] != "unknown"]
    values = {
        "schema": SCHEMA,
        "entry_sha256": entry.digest_of(about.read_bytes()),
        "verified": datetime.now(UTC).isoformat(timespec="seconds"),
        "adaptive_bench": version("adaptive-bench"),
        "points": len(known),
        "trained": sum(one["trained"] for one in known),  # of models trained anew, the others were found trained
        "hold": sum(one["verdict"] == "holds" for one in known),
        "alike": sum(one["verdict"] == "alike" for one in known),
        "documents": sum(one["documents"] for one in known),
        "equal": sum(one["equal"] for one in known),
    }
    atomic.write_json(folder / FILE_NAME, values)
    return folder / FILE_NAME


def said_of(folder: Path) -> str:
    """Whether an entry was measured again, as its page says it; of a run, which is no entry, nothing."""
    about = folder / entry.FILE_NAME
    if not about.is_file():
        return ""
    try:
        values = read_json(folder / FILE_NAME)
        values = {"alike": 0} | dict(values) if values["schema"] == 1 else values
        same = values["schema"] in (1, SCHEMA) and values["entry_sha256"] == entry.digest_of(about.read_bytes())
        points, hold, alike, trained, documents, equal = (values[key] for key in _COUNTS)
        sound = (
            hold >= 0
            and alike >= 0
            and hold + alike <= points <= documents <= _MOST
            and 0 <= trained <= points
            and 0 <= equal <= documents
        )
        when = plain(str(values["verified"])[:10])
    except (Rejected, OSError, KeyError, TypeError):
        return UNVERIFIED
    if not (same and sound and points):
        return UNVERIFIED
    return (
        f"{when}: {hold:g} of {points:g} points hold, {alike:g} more score as another seed may; {equal:g} of "
        f"{documents:g} scores of documents are the same; {trained:g} of the points are of models trained again"
    )
