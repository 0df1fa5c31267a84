"""Files and folders that are either complete or absent, whatever happens while they are written.

They come about beside their place under a name that says which process writes them, so that what a killed one left can
be told apart: `.<name>.<host>-<process>-<start>-<number>.tmp`. What cannot be written is an `EnvironmentProblem` that
says why and what to change.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TextIO

from safetensors import SafetensorError

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem

TEMPORARY = ".tmp"  # ends the names of what is being written
_HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
_START = os.urandom(4).hex()  # a process number comes again, in a container at every start
_WRITER = re.compile(rf"\.{_HOST}-(\d+)-([0-9a-f]{{8}})-\d+\.tmp$")
_LONGEST = 100  # characters of a name that a temporary one repeats
_OF_THE_SYSTEM = re.compile(r"\(os error \d+\)")  # how libraries written in Rust end what the system refused
_numbers = itertools.count()
_check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def checked(check: Callable[[], None]) -> Iterator[None]:
    """Within the block, everything that is written or removed is preceded by a call that may refuse it."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def check() -> None:
    """What is asked before each write; nothing outside of `checked`."""
    if (asked := _check.get()) is not None:
        asked()


def _temporary(path: Path) -> Path:
    """A new name beside a path, under which it comes about; what killed processes were writing there is removed."""
    check()
    path.parent.mkdir(parents=True, exist_ok=True)
    start = f".{path.name[:_LONGEST]}."
    for other in path.parent.glob(f"{glob.escape(start)}*{TEMPORARY}"):
        if _is_abandoned(other):
            discard(other)
    return path.with_name(f"{start}{_HOST}-{os.getpid()}-{_START}-{next(_numbers)}{TEMPORARY}")


def _is_abandoned(path: Path) -> bool:
    """Whether a process of this machine was writing it that has ended."""
    if (writer := _WRITER.search(path.name)) is None:
        return False
    if int(writer[1]) == os.getpid():
        return writer[2] != _START
    try:
        os.kill(int(writer[1]), 0)
    except ProcessLookupError:
        return True
    except OSError:  # somebody else's, which is alive
        pass
    return False


def discard(path: Path) -> None:
    """Remove a file or a folder with all that is in it, as far as that is possible."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file through a temporary neighbour and an atomic rename."""
    with writable(path):
        replace_file(path, content)


def replace_file(path: Path, content: bytes, mode: int | None = None) -> None:
    """As `write_bytes`, for a caller that has words of its own for an `OSError`.

    Args:
        mode: Permissions of the file; by default those of a new one.
    """
    temporary = _temporary(path)
    try:
        with temporary.open("xb") as stream:
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            stream.write(content)
            _to_disk(stream)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def growing(path: Path, start: str = "") -> Iterator[TextIO]:
    """A text file that begins with `start`, to be appended to; others may read it meanwhile. At the end of the block it
    has reached the disk. It replaces a file that was there: whoever still has that one open writes where nobody looks.
    """
    with writable(path):
        temporary = _temporary(path)
        stream = temporary.open("x", encoding="utf-8")
        try:
            stream.write(start)
            _to_disk(stream)
            temporary.replace(path)
        except BaseException:
            stream.close()
            temporary.unlink(missing_ok=True)
            raise
    with stream:
        yield stream
        with writable(path):
            _to_disk(stream)


def remove(path: Path) -> None:
    """Take a file or a folder with all that is in it away, at one stroke; nothing if there is none."""
    with writable(path), suppress(FileNotFoundError):
        trash = _temporary(path)
        path.rename(trash)
        discard(trash)


def update_text(path: Path, text: str) -> None:
    """Write a text file unless it says that already: what is finished can be looked at where nothing can be written."""
    content = text.encode("utf-8")
    del text  # the table of a large run takes tens of megabytes, which would stand here three times
    with suppress(OSError):
        if path.stat().st_size == len(content) and path.read_bytes() == content:
            return
    write_bytes(path, content)


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON. NaN and infinity are refused: they are not JSON."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """Indented JSON, as every file of ours has it."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def rows_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """What `json_text` makes of a list of objects that hold no others. The encoder that is written in C, which takes a
    tenth of the time and of the memory, knows no indents; but what stands between two values it lets the caller choose.
    """
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",\n    ", ": ")).encode
    lines = [f"  {{\n    {encode(row)[1:-1]}\n  }}" for row in rows]
    return "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n"


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Give a temporary folder that becomes `target` when the block ends without an error. If `target` exists by then,
    somebody else has written the same thing and theirs stays.
    """
    with temporary_folder(target) as temporary:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync(file)
        check()
        if not target.exists():
            temporary.rename(target)
            _sync(target.parent)


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """A folder beside `target` for as long as the block lasts."""
    with writable(target):
        temporary = _temporary(target)
        temporary.mkdir()
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn what the file system says about `path` into an error a user can act on."""
    try:
        yield
    except AdaptiveBenchError:
        raise
    except Exception as error:
        # Weights and tokenizers are written by libraries with errors of their own, or with none that has a name.
        if not isinstance(error, OSError | SafetensorError) and _OF_THE_SYSTEM.search(str(error)) is None:
            raise
        reason, number = (error.strerror or error, error.errno) if isinstance(error, OSError) else (error, errno.ENOSPC)
        mend = {
            **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "Get permission to write there"),
            **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "Free some space"),
            errno.EISDIR: "Remove the folder there",
        }.get(number or 0, "Correct the path")
        raise EnvironmentProblem(
            f"The output folder must be writable, but {str(path)!r} cannot be written: {reason}. "
            f"{mend} or choose another folder: --out for runs, -o for what else a command writes."
        ) from error


def _to_disk(stream: Any) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
