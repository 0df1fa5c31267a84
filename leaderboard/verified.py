"""`verified.json` of an entry: when it was measured again, and how many of its points held.

It stands beside the files of the entry and belongs to none of its digests: whoever merges it vouches for it. It holds
for the very entry whose `entry.json` it names by digest; of any other it says nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from adaptive_bench.errors import UsageError
from adaptive_bench.metric import TOLERATED_SHARE
from adaptive_bench.source import code_of
from adaptive_bench.spec import method_name
from adaptive_bench.store import atomic

from . import entry
from .claims import check_order, date_of, submitted
from .forms import check_not_older, version_of
from .plain import plain
from .rows import Rejected, read_json, spec_of

FILE_NAME = entry.VERIFIED
SCHEMA = 5  # 4 counted the documents of all points together
_OLDEST = 4  # those before named no points, or not the code that measured them: they said less than a board asks
UNVERIFIED = "not measured again"
_VERDICTS = ("holds", "alike", "differs")
_COUNTS = ("points", "hold", "alike", "trained", "documents", "equal")
_OF_A_POINT = ("documents", "equal")
_MOST = 10**9
_KEYS = {"schema", "entry_sha256", "verified", "adaptive_bench", *_COUNTS, "measured"}
_KEYS_OF_A_POINT = {"method", "semantics", "task", "verdict", "trained", "code"}  # and `_OF_A_POINT`, since version 5
_CODE = re.compile(r"[0-9a-f]{16}", re.ASCII)


def recorder(folder: Path) -> Callable[[Sequence[Mapping[str, Any]]], Path]:
    """What keeps the findings of `leaderboard verify` beside an entry: it takes the points that were measured again, as
    `--json` prints them, and gives the file.

    Raises:
        UsageError: The folder is no entry; or, of what it is given, a point holds by a larger `--tolerance` alone.
    """
    if not (folder / entry.FILE_NAME).is_file():
        raise UsageError(
            f"What was verified is recorded beside an entry, but {str(folder)!r} is none. Submit it first."
        )
    return partial(_record, folder)


def _record(folder: Path, found: Sequence[Mapping[str, Any]]) -> Path:
    about = folder / entry.FILE_NAME
    known = [one for one in found if one["verdict"] != "unknown"]
    if loose := [one for one in known if one["verdict"] == "holds" and not _may_hold(one)]:
        raise UsageError(
            f"What is recorded beside an entry holds where at most {TOLERATED_SHARE:.0%} of the documents differ, but "
            f"of {loose[0]['method']} on {loose[0]['task']} "
            f"{loose[0]['equal']} of {loose[0]['documents']} are the same. "
            f"Give the command without --tolerance."
        )
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
        "measured": [
            {key: one[key] for key in ("method", "semantics", "task", "verdict", "trained", *_OF_A_POINT)}
            | {"code": code_of(method_name(one["method"]))}
            for one in known
        ],
    }
    atomic.write_json(folder / FILE_NAME, values)
    return folder / FILE_NAME


@dataclass(frozen=True)
class Again:
    """What was measured again of an entry, as whoever merged it vouches.

    Attributes:
        points: Measured again; of them `hold`, and `alike` score as another seed may.
        trained: Points of models that were trained again; the others were of models that were there.
        documents: Asked again; of them `equal` have the same score.
        since: When that was.
        total: How many points the entry has, as `verify` counts them.
        agreeing: By method (with its semantics) and task of each point that holds or is alike the digest of the code
            that measured it again; `None` of a plugin that was not there.
        named: How often it names a method and task.
    """

    points: int
    hold: int
    alike: int
    trained: int
    documents: int
    equal: int
    since: datetime
    total: int
    agreeing: Mapping[tuple[str, str], str | None] = field(default_factory=dict)
    named: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def when(self) -> str:
        """The day."""
        return f"{self.since:%Y-%m-%d}"

    def code(self, spec: str, task: str) -> str | None:
        """Digest of the code that measured a point of a method on a task again, as far as it is known."""
        return self.agreeing.get((spec, task))

    def agrees(self, spec: str, task: str) -> bool:
        """Whether a point of a method on a task was measured again and agrees."""
        return (spec, task) in self.agreeing

    def __str__(self) -> str:
        hold = f"{self.hold} hold{'s' * (self.hold == 1)}"
        if self.hold == self.points:
            hold = "it holds" if self.points == 1 else f"all {self.hold} hold"
        alike = f", {self.alike} more score{'s' * (self.alike == 1)} as another seed may" if self.alike else ""
        were = "was" if self.points == 1 else "were"
        these = "this point is" if self.points == 1 == self.trained else f"{self.trained} of these points are"
        return (
            f"{self.when}: {self.points} of its {self.total} points {were} measured again: {hold}{alike}; "
            f"{self.equal} of {self.documents} scores of documents are the same; {these} of models trained again"
        )


def of_entry(folder: Path, answers: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Again | None:
    """What was measured again of an entry; `None` where nobody says that anything was.

    Args:
        answers, rows: Of the entry, whose points they are.

    Raises:
        Rejected: What is said cannot be: of another entry, of more points than it has, or on a day that cannot be.
    """
    if not (folder / FILE_NAME).is_file():
        return None
    # As `verify` measures them: one of each method, task and saving it was trained towards. A table has no targets.
    known_of = answers["sweeps"] or rows
    places = {(spec_of(one), str(one["task"]), str(one.get("target"))) for one in known_of}
    there = Counter((spec, task) for spec, task, _ in places)
    found = _again(folder, len(places))
    if (since := submitted(folder)) is not None:
        check_order((f"{entry.FILE_NAME}: submitted", since), (f"{FILE_NAME}: verified", found.since))
    if found.points > found.total:
        raise Rejected(f"{FILE_NAME}: points {found.points}, in the entry {found.total}")
    asked = found.points * max((len(sweep["documents"]) for sweep in answers["sweeps"]), default=_MOST)
    if found.documents > asked:
        raise Rejected(f"{FILE_NAME}: documents {found.documents}, in the entry {asked}")
    known = {(spec_of(row), str(row["task"])) for row in rows}
    if strange := sorted({*found.named} - known):
        raise Rejected(f"{FILE_NAME}: {plain(' on '.join(strange[0]), 100)} is not in the entry")
    if answers["sweeps"] and (more := found.named - there):
        (spec, task), times = min((place, found.named[place]) for place in more)
        where = plain(f"{spec} on {task}", 100)
        raise Rejected(f"{FILE_NAME}: {where} is named {times} times, in the entry {there[spec, task]}")
    return found


def _again(folder: Path, total: int) -> Again:
    values = read_json(folder / FILE_NAME)
    if not isinstance(values, dict):
        raise Rejected(f"{FILE_NAME} does not hold what `leaderboard verify --record` writes")
    if unknown := sorted(values.keys() - _KEYS):
        raise Rejected(f"{FILE_NAME}: {plain(unknown[0], 40)} is no key of it")
    try:
        version_of(values.get("adaptive_bench"))
    except ValueError as error:
        told = plain(values.get("adaptive_bench"), 40)
        raise Rejected(f"{FILE_NAME}: adaptive_bench: {error}, got {told!r}") from error
    about = read_json(folder / entry.FILE_NAME)
    schema, oldest = values.get("schema"), SCHEMA if about["schema"] > 2 else _OLDEST
    if not isinstance(schema, int) or isinstance(schema, bool) or not oldest <= schema <= SCHEMA:
        raise Rejected(
            f"{FILE_NAME}: schema is {' or '.join(map(str, range(oldest, SCHEMA + 1)))}, got {plain(schema, 20)}; "
            f"`leaderboard verify ENTRY --record` writes it anew"
        )
    if about.get("adaptive_bench") is not None:
        check_not_older(FILE_NAME, values["adaptive_bench"], [about["adaptive_bench"]], "the entry was written by")
    digest = entry.digest_of((folder / entry.FILE_NAME).read_bytes())
    if values.get("entry_sha256") != digest:
        raise Rejected(
            f"{FILE_NAME}: entry_sha256 {plain(values.get('entry_sha256'), 16)}, of {entry.FILE_NAME} {digest[:16]}"
        )
    for key in _COUNTS:
        value = values.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
            raise Rejected(f"{FILE_NAME}: {key} is a count, got {plain(value, 20)}")
    points, hold, alike, trained, documents, equal = counts = [values[key] for key in _COUNTS]
    if not (points and hold + alike <= points <= documents and trained <= points and equal <= documents):
        raise Rejected(
            f"{FILE_NAME}: {', '.join(map(' '.join, zip(_COUNTS, map(str, counts), strict=True)))} cannot be"
        )
    agreeing = _agreeing(values.get("measured"), points, hold, alike, {*_OF_A_POINT} if schema > 4 else set())
    _check_sums(values, schema)
    named = Counter((spec_of(one), str(one["task"])) for one in values["measured"])
    since = date_of(FILE_NAME, "verified", values.get("verified"))
    return Again(points, hold, alike, trained, documents, equal, since, total, agreeing, named)


def _check_sums(values: Mapping[str, Any], schema: int) -> None:
    """Refuse counts that are not those of the points, and points that hold while their documents differ."""
    measured = values["measured"]
    for key in ("trained", *(_OF_A_POINT if schema > 4 else ())):
        if (summed := sum(one[key] for one in measured)) != values[key]:
            raise Rejected(f"{FILE_NAME}: {key} {values[key]}, by its points {summed}")
    together = [values] if values["hold"] == values["points"] else []
    for one in [one for one in measured if one["verdict"] == "holds"] if schema > 4 else together:
        if not _may_hold(one):
            raise Rejected(
                f"{FILE_NAME}: equal {one['equal']} of {one['documents']} documents, but what holds differs in at "
                f"most {TOLERATED_SHARE:.0%} of them"
            )


def _may_hold(one: Mapping[str, Any]) -> bool:
    return bool(one["documents"] - one["equal"] <= TOLERATED_SHARE * one["documents"])


def _agreeing(measured: Any, points: int, hold: int, alike: int, more: Set[str]) -> dict[tuple[str, str], str | None]:
    """Method and task of the points that agree, with the code that measured them again.

    Args:
        more: Counts that a point has beside what is said of it.

    A method trained towards several savings has several points on a task: it agrees there if none of them differs.
    """
    if not isinstance(measured, list) or not all(_is_point(one, more) for one in measured):
        raise Rejected(
            f"{FILE_NAME}: measured names each point, with its method, task and verdict, one of {', '.join(_VERDICTS)}"
        )
    if len(measured) != points:
        raise Rejected(f"{FILE_NAME}: points {points}, named are {len(measured)}")
    found = [(spec_of(one), one["task"], one["verdict"], one.get("code")) for one in measured]
    if strange := [
        code for *_, code in found if code is not None and not (isinstance(code, str) and _CODE.fullmatch(code))
    ]:
        raise Rejected(f"{FILE_NAME}: code of a point is 16 hexadecimal digits, got {plain(strange[0], 40)}")
    counts = Counter(verdict for _, _, verdict, _ in found)
    if (counts["holds"], counts["alike"]) != (hold, alike):
        raise Rejected(f"{FILE_NAME}: hold {hold}, alike {alike}, by its points {counts['holds']}, {counts['alike']}")
    differing = {(spec, task) for spec, task, verdict, _ in found if verdict == "differs"}
    return {(spec, task): code for spec, task, _, code in found if (spec, task) not in differing}


def _is_point(one: Any, more: Set[str]) -> bool:
    return (
        isinstance(one, dict)
        and one.keys() == _KEYS_OF_A_POINT | more
        and all(isinstance(one[key], str) for key in ("method", "semantics", "task"))
        and isinstance(one["trained"], bool)
        and all(type(one[key]) is int for key in more)
        and all(0 <= one[key] <= one["documents"] for key in more)  # which is a number by now
        and one["verdict"] in _VERDICTS
    )
