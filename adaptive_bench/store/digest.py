"""Digests of files, so that a byte that changes on disk is noticed before a number depends on it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_SEAL = ',\n  "content_sha256": "'


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


def sealed(text: str) -> str:
    """A JSON object as text, with the digest of that text as its last key."""
    body = text.rstrip().removesuffix("}").rstrip()
    return body + _seal_of(body.encode("utf-8")).decode("ascii")


def _seal_of(body: bytes) -> bytes:
    """What ends a sealed file after everything else in it."""
    return f'{_SEAL}{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode("ascii")


def is_intact(content: bytes) -> bool:
    """Whether a file ends with the digest of every byte before it."""
    body, seal, rest = content.rpartition(_SEAL.encode())
    return bool(seal) and seal + rest == _seal_of(body)


def digest_in(content: bytes) -> str:
    """The digest that an intact file ends with."""
    return content[-len('"\n}\n') - 64 : -len('"\n}\n')].decode("ascii")


def unsealed(content: bytes) -> dict[str, Any]:
    """What a sealed file says, without its seal.

    Raises:
        ValueError: It has no seal or another content than when it was sealed, is not UTF-8, or holds NaN or infinity.
    """
    if not is_intact(content):
        sealed_once = _SEAL.strip(",\n ").encode() in content
        raise ValueError("it changed since it was written" if sealed_once else "it has no digest of its content")
    values = parsed(content.decode())
    del values["content_sha256"]
    return values


def parsed(text: str) -> Any:
    """What JSON says.

    Raises:
        ValueError: It is none, or holds NaN or infinity.
    """
    return _JSON.decode(text)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse)  # made once: records are many small files
