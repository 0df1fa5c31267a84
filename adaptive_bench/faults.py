"""Whose fault an unexpected error is: that of a plugin, whose file and line can be named, the machine's, or our own."""

from __future__ import annotations

import errno
import sys
import traceback
from pathlib import Path

from adaptive_bench.errors import (
    AdaptiveBenchError,
    Defect,
    EnvironmentProblem,
    PluginFault,
    message_of,
)

_watched: set[Path] = set()  # files and folders that plugins' code lies in
_INSTALLED = {"site-packages", "dist-packages"}
_OWN = Path(__file__).resolve().parent
# What torch says of memory in a `RuntimeError`, and its `OutOfMemoryError`, which is one.
_NO_MEMORY = ("out of memory", "can't allocate memory", "CUDNN_STATUS_NOT_SUPPORTED")
_MACHINE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.EIO, errno.ENOMEM),
    *(errno.ELOOP, errno.ENAMETOOLONG),
}


def watch(path: Path) -> None:
    """Remember that code in this file or folder is a plugin's. A folder may hold an environment, which is not."""
    _watched.update((path.absolute(), path.resolve()))


def is_watched(filename: str) -> bool:
    """Whether it is a plugin's file."""
    path = Path(filename)
    inside = [path.relative_to(one).parts for one in _watched if path.is_relative_to(one)]
    return any(map(_INSTALLED.isdisjoint, inside)) and not path.is_relative_to(_OWN)


def place(error: BaseException | None) -> str | None:
    """Innermost line of a plugin's code that an error, or what it arose from, went through (`mine.py, line 12, in
    decide`), if any.
    """
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        if isinstance(error, SyntaxError) and error.filename is not None and is_watched(error.filename):
            return f"{error.filename}, line {error.lineno}"
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if is_watched(frame.filename):
                return f"{frame.filename}, line {frame.lineno}, in {frame.name}"
        error = error.__cause__ or error.__context__
    return None


def blame(error: BaseException, doing: str) -> None:
    """Say whose fault an error is, if a plugin's code is where it arose.

    Args:
        doing: The sentence that the error ends, such as `The task 'mine' cannot be set up`.

    Raises:
        PluginFault: The error went through a plugin's code.
    """
    if (where := place(error)) is not None:
        raise PluginFault(f"{doing}: {_said(error)} ({where}). Correct the plugin.") from error


def in_plugin(kind: type) -> str:
    """The name of a class, with the file where it is a plugin's."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return f"{kind.__name__} ({file})" if is_watched(file) else kind.__name__


def explained(error: BaseException, suspect: str | None = None) -> AdaptiveBenchError:
    """An error of any type as one of ours, with what to do about it.

    Args:
        suspect: The plugin that was at work, if one was: it is blamed where nothing else speaks against it.
    """
    what, where = _said(error), place(error)
    if isinstance(error, AdaptiveBenchError):
        is_said = type(error) is not PluginFault or where is None or where in str(error)
        return error if is_said else PluginFault(f"{error} It was given in {where}.")
    if where is not None:
        return PluginFault(
            f"{what} ({where}). Correct the plugin; of a method, `adaptive-bench check` tries all that it does."
        )
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in what for words in _NO_MEMORY)
    ):
        return EnvironmentProblem(
            "Memory ran out. Choose a smaller --model, or a machine or --device with more memory."
        )
    if isinstance(error, ImportError) and not (error.name or "").startswith("adaptive_bench"):
        return EnvironmentProblem(
            f"A package that adaptive-bench needs cannot be imported here: {what}. Install or repair it in this Python "
            f"(`{sys.executable} -m pip install ...`), and give the same command again."
        )
    if isinstance(error, OSError) and error.errno in _MACHINE:
        return EnvironmentProblem(f"The system refused: {what}. Correct that and give the same command again.")
    if suspect is not None:
        step = "`adaptive-bench check` says which rule it breaks."
        if not suspect.startswith("the method"):
            step = "Look at what the filters, metrics and aggregations of its YAML file take and give."
        return PluginFault(
            f"{what}. It happened in adaptive-bench while {suspect} was at work, most likely because of what it gave. "
            f"{step}"
        )
    return Defect(
        f"{what}. Finished work is kept on disk. The same command with --debug shows where it happened; please report "
        "it with what it shows."
    )


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {message_of(error)}".rstrip(": .")
