"""Files that the user names, written by one rule whatever the command.

`-`, `/dev/stdout`              standard output (`./-` is a file of that name)
a regular file, or none         the whole content by an atomic rename; an existing file keeps its permissions
a link                          what it leads to, by this same rule
a FIFO or a character device    written into: `/dev/null`, what a shell makes of `>(gzip > a.gz)`
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
    """The value of an option that names a file: `-` stays, `./-` becomes a path that is not taken for it.

    A path is an option's default, which Typer gives as it is: `STDOUT` means standard output.
    """
    path = Path(text)
    return path if text in ("-", STDOUT) or path != STDOUT else Path.cwd() / path


def folder(text: str | Path) -> Path:
    """The value of an option that names a folder to write.

    Raises:
        UsageError: It is `-`.
    """
    if text == "-":
        raise UsageError("`-` is standard output, and a folder cannot be written there. Name a folder.")
    return file(text)


def new_folder(text: str | Path) -> Path:
    """As `folder`, for one that is made at a stroke: where a link leads to nothing yet, it comes about there."""
    path = folder(text)
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def named(path: Path) -> str:
    """A file as a message names it."""
    return "standard output" if path == STDOUT else str(path)


def is_stdout(path: Path | None) -> bool:
    """Whether a file goes to standard output: then messages belong on standard error."""
    with suppress(OSError, ValueError, AttributeError):  # nothing is there, or standard output is no file or closed
        return path is not None and (path == STDOUT or os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno())))
    return False


def write_text(path: Path, text: str) -> None:
    """Write text in UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def check(path: Path) -> None:
    """Refuse what `write_bytes` would refuse, before there is anything to write.

    Raises:
        UsageError: It can hold no file.
        EnvironmentProblem: It cannot be written.
    """
    if is_stdout(path):
        return
    with _writable(path):
        place, mode = _place(path)
        if mode is None or stat.S_ISREG(mode):  # it comes about beside itself, and takes its name
            folder = next(one for one in place.parents if one.exists())
            with tempfile.TemporaryFile(dir=folder):  # what is missing below is made
                pass


def write_bytes(path: Path, content: bytes) -> None:
    """Write to what the user named, by the rule above.

    Raises:
        UsageError: It can hold no file: a folder, a socket, a disk.
        EnvironmentProblem: It cannot be written; the message says why.
        BrokenPipeError: Nobody reads standard output any more.
    """
    if path == STDOUT and sys.stdout is None:  # as Python has it where a shell closed it: `>&-`
        raise EnvironmentProblem("Output goes to standard output, which is closed. Name a file with -o.")
    if is_stdout(path):  # written where it stands: what was printed before comes before
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    with _writable(path):
        place, mode = _place(path)
        if mode is None or stat.S_ISREG(mode):
            atomic.replace_file(place, content, None if mode is None else stat.S_IMODE(mode))
        else:
            with os.fdopen(os.open(place, os.O_WRONLY | os.O_NOCTTY), "wb") as stream:  # never made anew: it is there
                stream.write(content)


def _place(path: Path) -> tuple[Path, int | None]:
    """Where links lead, and the mode of what is there, if anything is.

    Raises:
        UsageError: It is nothing that can be written to.
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
