"""Files that the user names, written by one rule whatever the command.

`-`                             standard output (`./-` is a file of that name)
a regular file, or none         the whole content by an atomic rename; an existing file keeps its permissions
a link                          what it leads to, by this same rule
a FIFO or a character device    written into: `/dev/stdout`, `/dev/null`, what a shell makes of `>(gzip > a.gz)`
a folder, a socket, a disk      refused
"""

from __future__ import annotations

import errno
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
_DESCRIPTORS = (Path("/dev/fd"), Path("/proc/self/fd"))
_MOST_LINKS = 40  # as Linux has it


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
    with suppress(OSError):
        place = followed(path)
        return path if isinstance(place, int) else place
    return path


def named(path: Path) -> str:
    """A file as a message names it."""
    return "standard output" if path == STDOUT else str(path)


def is_stdout(path: Path | None) -> bool:
    """Whether a file goes to standard output: then messages belong on standard error."""
    if path is None or path == STDOUT:
        return path == STDOUT
    with suppress(OSError):
        return followed(path) == 1
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
    if path == STDOUT:
        return
    with _writable(path):
        place = followed(path)
        if isinstance(place, int):
            return
        mode = _mode(place)
        _refuse_other(path, mode)
        if mode is None or stat.S_ISREG(mode):  # it comes about beside itself, and takes its name
            folder = next(one for one in place.absolute().parents if one.exists())
            with tempfile.TemporaryFile(dir=folder):  # what is missing below is made
                pass


def write_bytes(path: Path, content: bytes) -> None:
    """Write to what the user named, by the rule above.

    Raises:
        UsageError: It can hold no file: a folder, a socket, a disk.
        EnvironmentProblem: It cannot be written; the message says why.
        BrokenPipeError: Nobody reads standard output any more.
    """
    if path == STDOUT:
        if sys.stdout is None:  # as Python has it where a shell closed it: `>&-`
            raise EnvironmentProblem("Output goes to standard output, which is closed. Name a file with -o.")
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    with _writable(path):
        place = followed(path)
        if isinstance(place, int):
            sys.stdout.flush()  # what was printed before comes before
            _into(os.dup(place), content)
            return
        mode = _mode(place)
        _refuse_other(path, mode)
        if mode is None or stat.S_ISREG(mode):
            atomic.replace_file(place, content, None if mode is None else stat.S_IMODE(mode))
        else:
            _into(os.open(place, os.O_WRONLY | os.O_NOCTTY), content)  # never made anew: it is there


def followed(path: Path) -> Path | int:
    """Where links lead: a path that is none (nothing need be there), or the number of a descriptor of this process.

    Raises:
        OSError: They lead in a circle, or may not be followed.
    """
    here = {known.resolve() for known in _DESCRIPTORS if known.exists()}
    for _ in range(_MOST_LINKS):
        if path.name.isdecimal() and _resolved(path.parent) in here:
            return int(path.name)
        if not path.is_symlink():
            return path
        path = path.parent / path.readlink()
    raise _circle(path)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError as error:  # what Python before 3.13 makes of a circle
        raise _circle(path) from error


def _circle(path: Path) -> OSError:
    return OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _refuse_other(path: Path, mode: int | None) -> None:
    if mode is None or stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        return
    kind = "a folder" if stat.S_ISDIR(mode) else "no file, pipe or terminal"
    raise UsageError(f"Output goes to a file, a pipe or `-`, but {str(path)!r} is {kind}. Name another one.")


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _into(descriptor: int, content: bytes) -> None:
    with open(descriptor, "wb") as stream:
        stream.write(content)


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        if is_stdout(path):
            raise
        raise EnvironmentProblem(f"The reader of {str(path)!r} has gone before everything was written.") from None
    except OSError as error:
        raise EnvironmentProblem(
            f"The output {str(path)!r} cannot be written: {error.strerror or error}. Free some space, or name another "
            f"file or `-` for standard output."
        ) from error
