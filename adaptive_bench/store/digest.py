"""Digests of files: of what a key depends on, and of the weights of a saved model."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple


def digests(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    """The sha256 of files by their path in a folder."""
    return {file.relative_to(folder).as_posix(): file_digest(file) for file in sorted(files)}


def changed(folder: Path, known: Mapping[str, str]) -> list[str]:
    """Those files that are missing or have other content than when the digests were taken."""
    files = {name: folder / name for name in known}
    return [name for name, file in files.items() if not file.is_file() or file_digest(file) != known[name]]


def folder_digest(folder: Path) -> str:
    """One digest for the names and the content of all files below a folder, whatever their times say."""
    found = digests(folder, (file for file in folder.rglob("*") if file.is_file()))
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def file_digest(file: Path) -> str:
    """The sha256 of a file. It is read again only when size, times or place on disk changed since it was read last."""
    before = _stamp(file)
    known = _known.get(file)
    if known is not None and known[0] == before:
        return known[1]
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    # What changes again within a tick of the file system's clock keeps its times.
    if _stamp(file) == before and abs(time.time() - before.changed_s) > _TICK_S:
        _known[file] = before, digest
    return digest


class _Stamp(NamedTuple):
    size: int
    written_ns: int
    changed_s: float
    inode: int
    device: int


_known: dict[Path, tuple[_Stamp, str]] = {}
_TICK_S = 2.0


def _stamp(file: Path) -> _Stamp:
    found = file.stat()
    return _Stamp(found.st_size, found.st_mtime_ns, found.st_ctime, found.st_ino, found.st_dev)
