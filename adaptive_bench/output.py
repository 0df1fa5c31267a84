"""Writes files that the user names, by one rule for all commands.

`-`, `/dev/stdout`              written to standard output (`./-` is a file of that name)
a regular file, or none yet     replaced as a whole by an atomic rename; an existing file keeps its permissions
a link                          the target of the link is written, by this same rule
a FIFO or a character device    written into: `/dev/null`, or what a shell makes of `>(gzip > a.gz)`
a folder, a socket, a disk      refused
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.store import atomic

STDOUT = Path("-")


def file(text: str | Path) -> Path:
    """Return the path that an option names: `-` stays `-`, and `./-` becomes a path that is not taken for it.

    If the value is a path already, it is the option's default, which Typer passes on as it is: then `STDOUT` means
    standard output.
    """
    path = Path(text)
    return path if text in ("-", STDOUT) or path != STDOUT else Path.cwd() / path


def folder(text: str | Path) -> Path:
    """Return the path of an option that names a folder to write.

    Raises:
        UsageError: The option is `-`.
    """
    if text == "-":
        raise UsageError("`-` is standard output, and a folder cannot be written there. Name a folder.")
    return file(text)


def new_folder(text: str | Path) -> Path:
    """Return the path of an option that names a folder to be created atomically; a link is followed to its target,
    which need not exist yet.
    """
    path = folder(text)
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def named(path: Path) -> str:
    """Return how a message names a file."""
    return "standard output" if path == STDOUT else str(path)


def is_stdout(path: Path | None) -> bool:
    """Whether a path means standard output; messages then belong on standard error."""
    with suppress(OSError, ValueError, AttributeError):  # the path does not exist, or standard output is closed or fake
        return path is not None and (path == STDOUT or os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno())))
    return False


def write_text(path: Path, text: str) -> None:
    """Write text in UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def check(path: Path) -> None:
    """Refuse a path that `write_bytes` would refuse, before there is anything to write.

    Raises:
        UsageError: The path can hold no file.
        EnvironmentProblem: The path cannot be written.
    """
    if is_stdout(path):
        return
    with _writable(path):
        place, mode = _place(path)
        if mode is None or stat.S_ISREG(mode):  # it will be written beside the path and renamed, so try its folder
            folder = next(one for one in place.parents if one.exists())
            with tempfile.TemporaryFile(dir=folder):  # missing folders below this one will be created
                pass


def write_bytes(path: Path, content: bytes) -> None:
    """Write to the path that the user named, by the rule above.

    Raises:
        UsageError: The path can hold no file: it is a folder, a socket or a disk.
        EnvironmentProblem: The path cannot be written; the message says why.
        BrokenPipeError: Nobody reads standard output any more.
    """
    if path == STDOUT and sys.stdout is None:  # Python sets it to `None` if the shell closed it: `>&-`
        raise EnvironmentProblem("Output goes to standard output, which is closed. Name a file with -o.")
    if is_stdout(path):  # written through `sys.stdout`, so that it comes after what was printed before
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    with _writable(path):
        place, mode = _place(path)
        if mode is None or stat.S_ISREG(mode):
            atomic.replace_file(place, content, None if mode is None else stat.S_IMODE(mode))
        else:
            with os.fdopen(os.open(place, os.O_WRONLY | os.O_NOCTTY), "wb") as stream:  # no O_CREAT: it exists
                stream.write(content)


def _place(path: Path) -> tuple[Path, int | None]:
    """Follow links, and return the target with its mode (`None` if it does not exist).

    Raises:
        UsageError: The target is nothing that can be written to.
        OSError: Links lead in a circle, or may not be followed.
    """
    place = Path(os.path.realpath(path))
    try:
        mode = place.stat().st_mode
    except FileNotFoundError:
        return place, None
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        kind = "a folder" if stat.S_ISDIR(mode) else "no file, pipe or terminal"
        raise UsageError(f"Output goes to a file, a pipe or `-`, but {str(path)!r} is {kind}. Name another one.")
    return place, mode


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise EnvironmentProblem(f"The reader of {str(path)!r} has gone before everything was written.") from None
    except OSError as error:
        raise EnvironmentProblem(
            f"The output {str(path)!r} cannot be written: {error.strerror or error}. Free some space, or name another "
            f"file or `-` for standard output."
        ) from error
