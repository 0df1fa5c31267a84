"""Digests of files, so that a byte that changes on disk is noticed before a number depends on it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path


def digests(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    """The sha256 of files by their path in a folder."""
    return {file.relative_to(folder).as_posix(): _sha256(file) for file in sorted(files)}


def changed(folder: Path, known: Mapping[str, str]) -> list[str]:
    """Those files that are missing or have other content than when the digests were taken."""
    return [name for name, digest in known.items() if not (folder / name).is_file() or _sha256(folder / name) != digest]


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
