"""Entries of a board: folders of raw measurements, from which the board computes everything that it shows.

config.yaml: The run's configuration. about.yaml: Who made the entry and with what, and its status, which a maintainer
sets. methods.json: What the run knows of its methods. *.parquet: What was measured, see `store.entry_files`.
headroom.json: What `adaptive-bench headroom` found, if it was run. SHA256SUMS: Digests of all other files except
about.yaml, as sha256sum writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from packaging.licenses import canonicalize_license_expression
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from adaptive_bench import registry
from adaptive_bench.capabilities import stored_matrix
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, message_of
from adaptive_bench.headroom import verdict
from adaptive_bench.spec import method_name
from adaptive_bench.store import entry_files
from adaptive_bench.store.atomic import json_text
from adaptive_bench.store.keys import file_digest
from adaptive_bench.store.measured import MeasuredSweep, Measurements
from adaptive_bench.store.runs import is_entry
from adaptive_bench.tables import outcome
from adaptive_bench.tables.task_notes import floor_ceiling_notes, unparsable_notes
from adaptive_bench.task import Task
from adaptive_bench.validation import read_mapping, rule_of

from .plain import plain
from .row import Rejected, checked, read_json, spec_of

CONFIG, ABOUT, METHODS, SUMS = "config.yaml", "about.yaml", "methods.json", "SHA256SUMS"
HEADROOM = "headroom.json"  # in the folder of a run or an entry, as `headroom --output` writes it
_HEADROOM_KEYS = ("kind", "version", "tasks")
LARGEST_BYTES = 10_000_000  # all files of an entry together
SELF_REPORTED, REPRODUCED = "self-reported", "reproduced"
VERSIONS = ("adaptive-bench", "torch", "transformers", "lm-eval", "python", "device", "device_name", "threads")
_LONGEST_REASON = 1000
# https alone, without user or port, and no character that could end an attribute or a Markdown link.
_LINK = r"^https://[A-Za-z0-9.\-]+\.[A-Za-z]{2,}(/[A-Za-z0-9._~%/#?=&+,:@\-]*)?$"
# Two spaces, as sha256sum writes by default; a name has no folder.
_SUM = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9_.\-]+)", re.ASCII)


def _printable(text: str) -> str:
    if not text.strip() or plain(text) != text:
        raise ValueError("a line of text without control characters is needed")
    return text


_Line = Annotated[str, Field(max_length=200), AfterValidator(_printable)]
_Link = Annotated[str, Field(pattern=_LINK, max_length=200)]


class About(BaseModel):
    """`about.yaml`.

    Attributes:
        paper, code, plugin: Links to the paper, the code of the study, the source of the plugin.
        package: Name and version of the package that has the plugin.
        status: `reproduced` once a maintainer has trained a cell again with a fresh seed.
        plugins: Names of the plugin files that the run was made with.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    authors: Annotated[list[_Line], Field(min_length=1, max_length=50)]
    licence: Annotated[_Line, AfterValidator(canonicalize_license_expression)]  # SPDX name of the entry's licence
    affiliation: _Line | None = None
    paper: _Link | None = None
    code: _Link | None = None
    plugin: _Link | None = None
    package: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._\-]*==[A-Za-z0-9.!+_\-]+$")] | None = None
    status: Literal["self-reported", "reproduced"] = "self-reported"
    submitted: _Line | None = None  # time of submission, in UTC
    versions: list[dict[str, _Line]] = []  # versions of software and device, each combination once
    plugins: list[Annotated[str, Field(pattern=r"^\w[\w.\-]{0,99}\.py$")]] = []

    @classmethod
    def of(cls, values: object) -> About:
        """The checked content of such a file; `Rejected` if a key or a value is not as it should be."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = plain(".".join(map(str, first["loc"])), 60)
            raise Rejected(f"{ABOUT}: {where}: {rule_of(first)}, got {plain(first['input'], 80)!r}") from error

    def shown(self) -> dict[str, Any]:
        """The part that a page shows: who made the entry, and where."""
        return self.model_dump(exclude_none=True, exclude={"status", "submitted", "versions", "plugins"})


@dataclass(frozen=True)
class Entry:
    """An entry, with what the board computes from it.

    Attributes:
        rows, answers: As in a run's `table.json` and `answers.json`; the rows are checked, see `row.checked`.
        warnings: What a reader of the table should know.
    """

    folder: Path
    about: About
    config: Mapping[str, Any]
    measured: Measurements
    rows: Sequence[dict[str, Any]]
    answers: Mapping[str, Any]
    warnings: Sequence[str]

    def of_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """What supports a row: the entry's status, whether the conformance suite has probed the method here, and where
        the method comes from if it is not of this package.
        """
        spec = spec_of(row)
        known = stored_matrix(method_name(spec)).get(spec, {}).get("causality")
        return {"evidence": self.about.status, "checked": bool(known), "external": self.external(spec)}

    def external(self, spec: str) -> str | None:
        """Where a method comes from; `None` for a method of this package."""
        name = method_name(spec)
        here = name in registry.names("methods")
        if here and not registry.is_foreign("methods", name):
            return None
        return f"{self.about.package or self.about.plugin or 'plugin'}{'' if here else ', not here'}"

    def status_text(self) -> str:
        """The meaning of the entry's status, as a sentence without its full stop."""
        if self.about.status == REPRODUCED:
            return "reproduced: a maintainer trained a cell of it again with a fresh seed"
        return "self-reported: nobody else has trained a cell of it again"


def read_entry(folder: Path) -> Entry:
    """Read an entry and compute its table.

    Raises:
        Rejected: Something cannot be read; the message names the file and, for a table, the row.
    """
    # Before anything is parsed: this also limits how large a stranger's files may be.
    check_sums(folder)
    try:
        about, config = About.of(read_mapping(folder / ABOUT)), read_mapping(folder / CONFIG)
        measured = entry_files.read(folder)
        rows, warnings = table_of(measured.sweeps, config)
        # Without validation documents and controls of shuffled decisions: no row's score comes from them.
        shown = [one for one in measured.sweeps if one.split == "test" and not one.variant]
        answers = outcome.answers_file(list(map(outcome.answers_of, shown)))
    except AdaptiveBenchError as error:
        raise Rejected(plain(message_of(error), _LONGEST_REASON).removesuffix(".")) from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, Rejected):  # which is a ValueError
            raise
        # The file holds a value that no check covers. A stranger's entry must not stop the build.
        raise Rejected(f"its measurements make no table ({plain(type(error).__name__)}: {plain(error)})") from error
    for number, row in enumerate(rows):
        try:
            rows[number] = checked(row)
        except Rejected as why:
            where = ", ".join(str(row[name]) for name in ("method", "task", "metric"))
            raise Rejected(f"{entry_files.POINTS}, {plain(where, 200)}: {why}") from why
    methods = read_json(folder / METHODS)
    # `provenance` goes through these facts without further checks.
    facts = methods.get("methods") if isinstance(methods, dict) else None
    if not isinstance(facts, dict) or not all(isinstance(one, dict) for one in facts.values()):
        raise Rejected(f"{METHODS} does not hold what a run writes")
    # Only to refuse what the page could not show; it reads the record again.
    read_headroom(folder)
    return Entry(folder, about, config, measured, rows, answers, warnings)


def open_entry(folder: Path) -> Entry:
    """As `read_entry`, but with errors meant for a user of the command line."""
    if not is_entry(folder):
        raise UsageError(
            f"An entry has a {entry_files.POINTS}, but {str(folder)!r} has none. Name a folder that `adaptive-bench "
            f"leaderboard submit` wrote."
        )
    try:
        return read_entry(folder)
    except Rejected as why:
        raise EnvironmentProblem(
            f"A board must be able to read an entry, but it refuses {str(folder)!r}: {why}. Correct the entry, or "
            f"submit the run again."
        ) from why


def table_of(sweeps: Sequence[MeasuredSweep], config: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows and warnings of the table, the same as in the run that measured these sweeps."""
    groups: dict[tuple[str, str], list[MeasuredSweep]] = {}
    for one in sweeps:
        groups.setdefault((one.method, one.task), []).append(one)
    found, warnings = outcome.matched_rows(groups.values(), config["match_on"], config["match_phase"])
    plain_rows = [row.to_json() for row in found]
    # A task of a plugin that is not installed here has rows, but no chance level to compare them with.
    tasks = dict.fromkeys(row.task for row in found)
    here = (registry.get("tasks", task) for task in tasks if task in registry.names("tasks"))
    notes = floor_ceiling_notes(plain_rows, (task for task in here if isinstance(task, Task)))
    notes += unparsable_notes(plain_rows)
    return plain_rows, list(dict.fromkeys([*notes, *warnings]))


def sums_of(folder: Path) -> str:
    """The text of `SHA256SUMS`; `about.yaml` is left out, because its status changes."""
    names = sorted(path.name for path in folder.iterdir() if path.name not in (SUMS, ABOUT))
    return "".join(f"{file_digest(folder / name)}  {name}\n" for name in names)


def check_sums(folder: Path) -> None:
    """Refuse an entry that is too large, or whose files and digests are not those of its `SHA256SUMS`."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or not path.is_file():  # a link could show a file of the machine that builds
            raise Rejected(f"{plain(path.name, 60)} is not a file; an entry is a folder of files")
    size = sum(path.stat().st_size for path in folder.iterdir())
    if size > LARGEST_BYTES:
        raise Rejected(f"an entry has at most {LARGEST_BYTES / 1e6:g} MB, this one has {size / 1e6:.1f}")
    said = (folder / SUMS).read_text(encoding="utf-8") if (folder / SUMS).is_file() else ""
    known, found = ({name: digest for digest, name in _SUM.findall(text)} for text in (said, sums_of(folder)))
    for name in sorted(known.keys() | found.keys()):
        if known.get(name) != found.get(name):
            how = "is not in it" if name not in known else "is missing" if name not in found else "has another digest"
            raise Rejected(f"{SUMS} lists every file except {ABOUT} with its digest, but {plain(name, 60)} {how}")


def headroom_for_entry(path: Path) -> bytes:
    """The content of a record without the paths of model and data on this machine."""
    read_headroom(path.parent)
    record = json.loads(path.read_bytes())
    return json_text({key: record[key] for key in _HEADROOM_KEYS if key in record}).encode()


def read_headroom(folder: Path) -> list[tuple[str, str]]:
    """Pairs of a task and a sentence from the record in a folder; empty if there is no record.

    Raises:
        Rejected: The file is not such a record.
    """
    path = folder / HEADROOM
    if not path.is_file():
        return []
    try:
        return [(str(task["task"]), verdict(task)) for task in json.loads(path.read_bytes())["tasks"]]
    # JSON that is nested too deeply is a RecursionError.
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError, OSError) as error:
        raise Rejected(f"{HEADROOM} is not what `headroom --output` writes ({type(error).__name__})") from error
