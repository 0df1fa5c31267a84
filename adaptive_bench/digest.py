"""Digests of files, so that a byte that changes on disk is noticed before a number depends on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

_SEAL = ',\n  "content_sha256": "'


def digests(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    """The sha256 of files by their path in a folder."""
    return {file.relative_to(folder).as_posix(): _sha256(file) for file in sorted(files)}


def changed(folder: Path, known: Mapping[str, str]) -> list[str]:
    """Those files that are missing or have other content than when the digests were taken."""
    return [name for name, digest in known.items() if not (folder / name).is_file() or _sha256(folder / name) != digest]


def folder_digest(folder: Path) -> str:
    """One digest for the names and the content of all files below a folder, whatever their times say."""
    found = digests(folder, (file for file in folder.rglob("*") if file.is_file()))
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sealed(text: str) -> str:
    """A JSON object as text, with the digest of that text as its last key."""
    body = text.rstrip().removesuffix("}").rstrip()
    return f'{body}{_SEAL}{hashlib.sha256(body.encode("utf-8")).hexdigest()}"\n}}\n'


def is_sealed(content: bytes) -> bool:
    """Whether a file ends with a digest; those of earlier versions do not."""
    return b'"content_sha256"' in content


def is_intact(content: bytes) -> bool:
    """Whether every byte of a sealed file is what was written."""
    body, seal, rest = content.rpartition(_SEAL.encode())
    return bool(seal) and rest == f'{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode()
