"""Files and folders that are either complete or absent, whatever happens while they are written."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem

TEMPORARY_SUFFIX = ".tmp"


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file through a temporary neighbour and an atomic rename.

    Raises:
        EnvironmentProblem: The file cannot be written; the message says why and what to change.
    """
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=TEMPORARY_SUFFIX, dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            # mkstemp makes private files; records are for everybody the folder is for.
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON atomically. NaN and infinity are refused: they are not JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Give a temporary folder that becomes `target` when the block ends without an error.

    If `target` exists by then, somebody else has written the same thing and theirs stays.

    Raises:
        EnvironmentProblem: The folder cannot be written.
    """
    with writable(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=TEMPORARY_SUFFIX, dir=target.parent))
        try:
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            for file in temporary.rglob("*"):
                if file.is_file():
                    _sync(file)
            if not target.exists():
                temporary.rename(target)
                _sync(target.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn what the file system says about `path` into an error a user can act on."""
    try:
        yield
    except OSError as error:
        raise EnvironmentProblem(
            f"The output folder must be writable, but {str(path)!r} cannot be written: {error.strerror or error}. "
            f"Free some space or choose another folder with --out."
        ) from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    current = os.umask(0o022)
    os.umask(current)
    return current
