"""Writes files and folders that are either complete or absent, whatever happens while they are written.

Each is first written beside its place, under a temporary name that identifies the writing process, so that leftovers of
a killed process can be recognised: `.<name>.<host>-<process>-<start>-<number>.tmp`. A failed write raises an
`EnvironmentProblem` that says why and what to change.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import itertools
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem

TEMPORARY = ".tmp"  # ends the name of a file or folder that is still being written
_HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
_START = os.urandom(4).hex()  # process numbers are reused; in a container every start may get the same one
_WRITER = re.compile(rf"\.{_HOST}-(\d+)-([0-9a-f]{{8}})-\d+\.tmp$")
_LONGEST = 100  # characters of the final name that the temporary one repeats; most file systems allow 255 bytes in all
_OF_THE_SYSTEM = re.compile(r"\(os error \d+\)")  # how libraries written in Rust end the message of a system error
_numbers = itertools.count()
_check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def checked(check: Callable[[], None]) -> Iterator[None]:
    """Within the block, call `check` before everything that is written or removed; it raises to refuse the write."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def check() -> None:
    """Call the function given to `checked`, before each write; outside of `checked` do nothing."""
    if (asked := _check.get()) is not None:
        asked()


def _temporary(path: Path) -> Path:
    """Return a new temporary name beside a path, and remove what killed processes left there half written."""
    check()
    path.parent.mkdir(parents=True, exist_ok=True)
    start = f".{path.name[:_LONGEST]}."
    for other in path.parent.glob(f"{glob.escape(start)}*{TEMPORARY}"):
        if _is_abandoned(other):
            discard(other)
    return path.with_name(f"{start}{_HOST}-{os.getpid()}-{_START}-{next(_numbers)}{TEMPORARY}")


def _is_abandoned(path: Path) -> bool:
    """Whether a temporary file was written by a process of this machine that has ended."""
    if (writer := _WRITER.search(path.name)) is None:  # of another machine, whose processes cannot be asked about
        return False
    if int(writer[1]) == os.getpid():
        return writer[2] != _START  # an earlier process that had the number of this one
    try:
        os.kill(int(writer[1]), 0)  # signal 0 is not sent: it only asks whether the process is there
    except ProcessLookupError:
        return True
    except OSError:  # the process belongs to another user, and is alive
        pass
    return False


def discard(path: Path) -> None:
    """Remove a file, or a folder with its contents, as far as that is possible; errors are ignored."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, unless it has this content: a finished run can then be read on a read-only disk."""
    content = text.encode("utf-8")
    with suppress(OSError):
        if path.stat().st_size == len(content) and path.read_bytes() == content:
            return
    write_bytes(path, content)


def write_bytes(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write a file through a temporary neighbour and an atomic rename; `mode` gives its permissions."""
    with writable(path):
        temporary = _temporary(path)
        try:
            with temporary.open("xb") as stream:
                if mode is not None:
                    os.fchmod(stream.fileno(), mode)
                stream.write(content)
                # Before the rename: else the name might stand for an empty file after the machine has crashed.
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def append_text(path: Path, text: str) -> None:
    """Append to a text file, which others may read meanwhile."""
    with writable(path):
        check()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its contents, atomically; do nothing if it does not exist."""
    with writable(path), suppress(FileNotFoundError):
        trash = _temporary(path)
        path.rename(trash)  # first, so that a kill never leaves half a folder there
        discard(trash)


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON. NaN and infinity are refused, because JSON has neither."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """Return a value as indented JSON, in the form of all our files."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def update_json(path: Path, about: Mapping[str, Any], besides: Collection[str]) -> None:
    """Write JSON unless only values of the keys `besides` would change: those that were written first stay."""
    before: Any = None
    with suppress(OSError, ValueError):  # nothing is there, or nothing that can be read
        before = json.loads(path.read_bytes())
    kept = {name: before[name] for name in besides if name in before} if isinstance(before, dict) else {}
    # Compared as JSON reads it back, where a tuple is a list and every key a text.
    if before != json.loads(json_text({**about, **kept})):
        write_json(path, about)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Give a temporary folder that becomes `target` when the block ends without an error. If `target` exists by then,
    another process has written the same content, and its folder stays.
    """
    with temporary_folder(target) as temporary:
        yield temporary
        # Files first, then the rename, then the folder above: on disk, too, the target is complete or absent.
        for file in temporary.rglob("*"):
            if file.is_file():
                sync(file)
        check()
        if not target.exists():
            temporary.rename(target)
            sync(target.parent)  # a rename lasts once its folder is on disk


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """Give a folder beside `target` that is removed when the block ends."""
    with writable(target):
        temporary = _temporary(target)
        temporary.mkdir()
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn an error of the file system about `path` into one that a user can act on."""
    try:
        yield
    except AdaptiveBenchError:
        raise
    except Exception as error:
        # Libraries that write weights and tokenizers raise error types of their own, or a bare `Exception`.
        if not isinstance(error, OSError | SafetensorError) and _OF_THE_SYSTEM.search(str(error)) is None:
            raise
        # Other libraries do not give the number of a system error; a full disk is the likeliest.
        reason, number = (error.strerror or error, error.errno) if isinstance(error, OSError) else (error, errno.ENOSPC)
        mend = {
            **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "Get permission to write there"),
            **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "Free some space"),
            errno.EISDIR: "Remove the folder there",
        }.get(number or 0, "Correct the path")
        raise EnvironmentProblem(
            f"The output folder must be writable, but {str(path)!r} cannot be written: {reason}. "
            f"{mend} or choose another folder: --out for runs, -o for other output of a command."
        ) from error


def sync(path: Path) -> None:
    """Wait until a file or folder has reached the disk."""
    with writable(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
