"""Writes files that the user names, by one rule for all commands.

`-` and `/dev/stdout` are standard output. A file is replaced as a whole, by an atomic rename, with the permissions it
had; of a link the target is written. A pipe or a device is written into: `/dev/null`, or what a shell makes of
`>(gzip > a.gz)`.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from adaptive_bench.errors import UsageError
from adaptive_bench.store import atomic

STDOUT = Path("-")


def folder(text: str | Path) -> Path:
    """Return the path of an option that names a folder to write.

    Raises:
        UsageError: The option is `-`.
    """
    if text == "-":
        raise UsageError("`-` is standard output, and a folder cannot be written there. Name a folder.")
    return Path(text)


def named(path: Path) -> str:
    """Return how a message names a file."""
    return "standard output" if is_stdout(path) else str(path)


def is_stdout(path: Path | None) -> bool:
    """Whether a path means standard output; messages then belong on standard error."""
    return path in (STDOUT, Path("/dev/stdout"))


def check(path: Path) -> None:
    """Refuse a path that `write_bytes` would refuse, before there is anything to write.

    Raises:
        UsageError: The path is a folder.
        EnvironmentProblem: The path cannot be written.
    """
    if is_stdout(path):
        return
    with _writable(path):
        existing = next(one for one in Path(os.path.realpath(path)).parents if one.exists())
        with tempfile.TemporaryFile(dir=existing):  # missing folders below this one will be created
            pass


def write_text(path: Path, text: str) -> None:
    """Write text in UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write to the path that the user named, by the rule above.

    Raises:
        UsageError: The path is a folder.
        EnvironmentProblem: The path cannot be written; the message says why.
        BrokenPipeError: Nobody reads standard output any more.
    """
    if is_stdout(path):  # written through `sys.stdout`, so that it comes after what was printed before
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    with _writable(path):
        place = Path(os.path.realpath(path))
        mode: int | None = None
        with suppress(FileNotFoundError):
            mode = place.stat().st_mode
        if mode is None or stat.S_ISREG(mode):
            atomic.write_bytes(place, content, None if mode is None else stat.S_IMODE(mode))
        else:
            place.write_bytes(content)


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    if path.is_dir():
        raise UsageError(f"Output goes to a file or `-`, but {str(path)!r} is a folder. Name another one.")
    with atomic.writable(path):
        yield
