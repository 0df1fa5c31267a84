"""Files and folders that are either complete or absent, whatever happens while they are written."""

from __future__ import annotations

import glob
import hashlib
import itertools
import json
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem

TEMPORARY_SUFFIX = ".tmp"
# A temporary name says who writes it: `.<name>.<host>-<process>-<start>-<number>.tmp`.
_WRITER = re.compile(r"\.([0-9a-f]{8})-(\d+)-([0-9a-f]{8})-\d+\.tmp$")
_HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
_START = os.urandom(4).hex()  # a process number comes again, in a container at every start
_LONGEST = 100  # characters of a name that a temporary one repeats
_ABANDONED_S = 24 * 3600  # on another machine nobody can be asked
_numbers = itertools.count()


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
        temporary = _beside(path)
        try:
            with temporary.open("xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
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
    with temporary_folder(target) as temporary:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync(file)
        if not target.exists():
            temporary.rename(target)
            _sync(target.parent)


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """A folder beside `target` for as long as the block lasts.

    Raises:
        EnvironmentProblem: It cannot be written.
    """
    with writable(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = _beside(target)
        temporary.mkdir()
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there and may be removed."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


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


def _beside(target: Path) -> Path:
    """A temporary name for `target`. What killed processes were writing there is removed: it is written again now."""
    start = f".{target.name[:_LONGEST]}."
    for path in target.parent.glob(f"{glob.escape(start)}*{TEMPORARY_SUFFIX}"):
        if _is_abandoned(path):
            remove(path)
    return target.with_name(f"{start}{_HOST}-{os.getpid()}-{_START}-{next(_numbers)}{TEMPORARY_SUFFIX}")


def _is_abandoned(path: Path) -> bool:
    """Whether nobody writes a temporary file any more."""
    if (writer := _WRITER.search(path.name)) is None:
        return False
    host, process, start = writer.groups()
    if host != _HOST:
        try:
            return time.time() - path.stat().st_mtime > _ABANDONED_S
        except OSError:
            return False
    if int(process) == os.getpid():
        return start != _START
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
