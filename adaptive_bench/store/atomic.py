"""Files and folders that are either complete or absent, whatever happens while they are written.

Where two processes may believe that a folder is theirs, `fenced` lets the later one end the earlier one's writing at
one stroke, with nothing but renames.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from safetensors import SafetensorError

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, Superseded
from adaptive_bench.store.temporary import temporary_name

_OF_THE_SYSTEM = re.compile(r"\(os error \d+\)")  # how libraries written in Rust end what the system refused


@dataclass(frozen=True)
class _Stage:
    """Where things under `root` come about."""

    root: Path
    folder: Path


_stage: ContextVar[_Stage | None] = ContextVar("stage", default=None)


@contextmanager
def fenced(root: Path, folder: Path) -> Iterator[None]:
    """Within the block, what is written under `root` comes about in `folder` and is renamed out of it; what is removed
    is renamed into it first.

    A rename out of or into a folder that is gone fails, and the file system decides that: whoever removes `folder`, on
    whatever machine, has ended everything the block may still try. There is no moment between a check and a write.

    Args:
        folder: On the same file system as `root`; made by the caller, and never again.

    Raises:
        Superseded: In the block, by the first write after `folder` was removed.
    """
    token = _stage.set(_Stage(root, folder))
    try:
        yield
    finally:
        _stage.reset(token)


def check_stage() -> None:
    """Raise `Superseded` if the folder of `fenced` is gone; nothing outside of `fenced`."""
    stage = _stage.get()
    if stage is not None and not stage.folder.is_dir() and stage.root.is_dir():
        raise Superseded(
            f"A newer attempt at the work in {str(stage.root)!r} has taken it over; this one may not write there any "
            "more. Nothing is lost: the newer one goes on from the newest checkpoint."
        )


def make_folder(folder: Path) -> None:
    """Make a folder with those above it, but never that of `fenced`: once that is gone, so is the work in it.

    Raises:
        FileNotFoundError: It is gone.
    """
    stage = _stage.get()
    if stage is not None and folder.is_relative_to(stage.root) and not stage.root.is_dir():
        raise FileNotFoundError(errno.ENOENT, "it was removed while work went on there", str(stage.root))
    folder.mkdir(parents=True, exist_ok=True)


def _temp_path(path: Path) -> Path:
    """Where something comes about that will be at `path`: a name that nothing has."""
    stage = _stage.get()
    inside = stage is not None and path.is_relative_to(stage.root)
    return temporary_name(path, stage.folder if stage is not None and inside else path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file through a temporary neighbour and an atomic rename.

    Raises:
        EnvironmentProblem: The file cannot be written; the message says why and what to change.
    """
    with writable(path):
        replace_file(path, content)


def replace_file(path: Path, content: bytes, mode: int | None = None) -> None:
    """As `write_bytes`, for a caller that has words of its own for what can go wrong.

    Args:
        mode: Permissions of the file; by default those of a new one.

    Raises:
        OSError: The file cannot be written.
    """
    make_folder(path.parent)
    temporary = _temp_path(path)
    try:
        with temporary.open("xb") as stream:
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def growing(path: Path, start: str = "") -> Iterator[TextIO]:
    """A text file that begins with `start`, to be appended to; others may read it meanwhile. At the end of the block it
    has reached the disk.

    It replaces a file that was there: whoever still has that one open writes where nobody looks.

    Raises:
        EnvironmentProblem: The file cannot be written.
    """
    with writable(path):
        make_folder(path.parent)
        temporary = _temp_path(path)
        stream = temporary.open("x", encoding="utf-8")
        try:
            stream.write(start)
            stream.flush()
            os.fsync(stream.fileno())
            temporary.replace(path)
        except BaseException:
            stream.close()
            temporary.unlink(missing_ok=True)
            raise
    with stream:
        yield stream
        with writable(path):
            stream.flush()
            os.fsync(stream.fileno())


def remove(path: Path) -> None:
    """Take a file or a folder with all that is in it away, at one stroke; nothing if there is none.

    Raises:
        EnvironmentProblem: It cannot be removed.
    """
    with writable(path):
        trash = _temp_path(path)
        trash.mkdir()
        try:
            path.rename(trash / path.name)
        except FileNotFoundError:
            check_stage()
        finally:
            shutil.rmtree(trash, ignore_errors=True)


def move(path: Path, target: Path) -> None:
    """Give a file another name in its folder.

    Raises:
        EnvironmentProblem: It cannot be renamed.
    """
    with writable(target):
        between = _temp_path(target)
        path.replace(between)
        between.replace(target)


def update_text(path: Path, text: str) -> None:
    """Write a text file unless it says that already: what is finished can be looked at where nothing can be written."""
    content = text.encode("utf-8")
    del text  # the table of a large run takes tens of megabytes, which would stand here three times
    try:
        if path.stat().st_size == len(content) and path.read_bytes() == content:
            return
    except OSError:
        pass
    write_bytes(path, content)


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON atomically. NaN and infinity are refused: they are not JSON."""
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
        make_folder(target.parent)
        temporary = _temp_path(target)
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
        if not isinstance(error, OSError) or error.errno in (errno.ENOENT, errno.ESTALE):
            check_stage()
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        refused = isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
        full = not isinstance(error, OSError) or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        mend = "Get permission to write there" if refused else "Free some space" if full else "Correct the path"
        mend = "Remove the folder there" if isinstance(error, IsADirectoryError) else mend
        raise EnvironmentProblem(
            f"The output folder must be writable, but {str(path)!r} cannot be written: {reason}. "
            f"{mend} or choose another folder: --out for runs, -o for what else a command writes."
        ) from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
