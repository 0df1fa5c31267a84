"""Entries: runs that are passed on without their records. A folder with the table, the answers, the configuration, what
it was measured with, and digests of all of it. Old versions stay readable: each is brought to the next by a migration.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from adaptive_bench.errors import AdaptiveBenchError, message_of
from adaptive_bench.store.manifest import PACKED as MANIFEST
from adaptive_bench.store.results import ENTRY, PACKED_RECORDS, check_unchanged

from .headroom import FILE_NAME as HEADROOM
from .plain import plain
from .rows import Rejected, read_json

SCHEMA = 3  # 2 took into an entry what its records tell, or nobody reads; 1 had no phases
FILE_NAME = ENTRY
FILES = ("table.json", "answers.json", "methods.json", "run.json", "config.yaml")
DERIVED = ("table.json", "answers.json")  # left out where there are records: a board makes them of those
OPTIONAL_FILES = ("steps.json", HEADROOM, MANIFEST)
# Of all files together but for table and answers: a training with its points on three tasks has 0.02 to 0.08 MB.
LARGEST_BYTES = 20_000_000
LARGEST_DERIVED_BYTES = 32_000_000  # of those two, which an entry without records has, and early ones have all
VERIFIED = "verified.json"  # of whoever merges an entry, who vouches for it (`leaderboard.verified`)
LARGEST_BESIDE_BYTES = 1_000_000  # of `entry.json` and of `verified.json`, which no digest of an entry is of
_LONGEST_REASON = 2000
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


def read_rows(path: Path) -> list[Any]:
    """The rows of a `table.json` of a run, or of an entry of any version, in today's form but not yet checked.

    Raises:
        Rejected: It is no table, belongs to a version that is not known, or was changed since it was submitted.
    """
    if is_run := not path.with_name(FILE_NAME).is_file():
        check_run(path)
    version = SCHEMA if is_run else check(path.parent)
    value = read_json(path)
    if not isinstance(value, list):
        raise Rejected(f"a table is a list of rows, got {type(value).__name__}")
    return migrated(value, version)


def check_run(file: Path) -> None:
    """Check the digest of a run's table, or of its answers.

    Raises:
        Rejected: It does not hold, or there is none.
    """
    try:
        check_unchanged(file)
    except AdaptiveBenchError as error:
        # It names paths, the command that makes it again among them: longer than what a table says of itself may be.
        raise Rejected(plain(message_of(error), _LONGEST_REASON).removesuffix(".")) from error


def check(folder: Path) -> int:
    """Check the digests and the size of an entry; its schema version.

    Raises:
        Rejected: They do not hold.
    """
    _check_folder(folder)
    about = read_json(folder / FILE_NAME)
    version, files = (about.get("schema"), about.get("files")) if isinstance(about, dict) else (None, None)
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= SCHEMA:
        raise Rejected(f"this version reads entries of schema 1 to {SCHEMA}; update adaptive-bench to read newer ones")
    if not isinstance(files, dict) or not {"table.json", PACKED_RECORDS} & files.keys():
        raise Rejected(f"{FILE_NAME} names every file with its digest")
    size = {True: 0, False: 0}  # by whether a file is derived
    for name in (*FILES, *OPTIONAL_FILES, PACKED_RECORDS):
        path, digest = folder / name, files.get(name)
        if not path.is_file() and digest is None:
            continue
        if path.is_symlink() or not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise Rejected(f"{name} has no digest")
        if not path.is_file() or digest_of(path.read_bytes()) != digest:
            raise Rejected(f"{name} is not what was submitted, its digest differs")
        size[name in DERIVED] += path.stat().st_size
    if unknown := sorted(files.keys() - {*FILES, *OPTIONAL_FILES, PACKED_RECORDS}):
        raise Rejected(f"{FILE_NAME} names {plain(unknown[0], 60)!r}, which is no file of an entry")
    needed = {"table.json"} if version == 1 else {*FILES}
    if PACKED_RECORDS in files:
        needed = {*FILES} - {*DERIVED} | ({MANIFEST} if version > 2 else set())
    if missing := sorted(needed - files.keys()):
        raise Rejected(f"{missing[0]} is missing, which an entry has")
    if undeclared := sorted({one.name for one in folder.iterdir()} - {*files, FILE_NAME, VERIFIED}):
        raise Rejected(f"{plain(undeclared[0], 60)} is in the folder, but {FILE_NAME} does not name it: remove it")
    check_size(size[False], size[True])
    return version


def _check_folder(folder: Path) -> None:
    """Refuse a folder with anything but files, or with too much that no digest is of."""
    for one in sorted(folder.iterdir()):
        if one.is_symlink() or not one.is_file():
            what = "a link" if one.is_symlink() else "a folder" if one.is_dir() else "no file"
            raise Rejected(f"{plain(one.name, 60)} is {what}; an entry is a folder of files")
        if one.name in (FILE_NAME, VERIFIED) and (size := one.stat().st_size) > LARGEST_BESIDE_BYTES:
            raise Rejected(f"{one.name} has at most {LARGEST_BESIDE_BYTES / 1e6:g} MB, this one has {size / 1e6:.1f}")


def check_size(others: int, derived: int) -> None:
    """Refuse an entry that is too large.

    Args:
        others: Bytes of its files but for those in `DERIVED`.
        derived: Bytes of those.

    Raises:
        Rejected: It is.
    """
    for size, most, what in ((others, LARGEST_BYTES, "beside"), (derived, LARGEST_DERIVED_BYTES, "in")):
        if size > most:
            raise Rejected(
                f"an entry has at most {most / 1e6:g} MB {what} {' and '.join(DERIVED)}, this one has {size / 1e6:.1f}"
            )


def digest_of(content: bytes) -> str:
    """The sha256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def migrated(rows: list[Any], version: int) -> list[Any]:
    """Rows of an entry of some version as today's entries have them."""
    for step in range(version, SCHEMA):
        rows = [_MIGRATIONS[step](row) if isinstance(row, Mapping) else row for row in rows]
    return rows


def _from_1(row: Mapping[str, Any]) -> dict[str, Any]:
    """Tables had no phases: every axis was pooled. What was not known stays unknown."""
    return {**row, "phase": "all"}


# The rows of version 3 are those of 2: what is beside them has a stricter form (`forms`).
_MIGRATIONS: Mapping[int, Callable[[Mapping[str, Any]], dict[str, Any]]] = {1: _from_1, 2: dict}
