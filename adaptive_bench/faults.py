"""Whose fault an unexpected error is: that of a plugin, whose file and line can be named, the machine's, or our own."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from adaptive_bench.errors import (
    AdaptiveBenchError,
    Defect,
    EnvironmentProblem,
    PluginFault,
    UsageError,
    message_of,
    one_line,
)

_watched: set[str] = set()  # files and folders that plugins' code lies in
_of_tasks: set[str] = set()  # folders of plugins' tasks, which may be wide: a project with its environment, say
_INSTALLED = {"site-packages", "dist-packages"}
_OWN = str(Path(__file__).resolve().parent) + os.sep
# What torch says of memory in a `RuntimeError`, and its `OutOfMemoryError`, which is one.
_NO_MEMORY = ("out of memory", "can't allocate memory", "CUDNN_STATUS_NOT_SUPPORTED")
_MACHINE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.EIO, errno.ENOMEM),
    errno.ELOOP,
}


def watch(path: Path) -> None:
    """Remember that code in this file or folder is a plugin's."""
    _watched.add(str(path))


def add_task(folder: Path) -> None:
    """Remember that code in this folder, but for what is installed there, is that of a plugin's task."""
    _of_tasks.update(str(one) + os.sep for one in (folder.absolute(), folder.resolve()))


def blame(error: BaseException, doing: str) -> None:
    """Say whose fault an error is, if a plugin's code is where it arose.

    Args:
        doing: The sentence that the error ends, such as `The task 'mine' cannot be set up`.

    Raises:
        PluginFault: The error went through a plugin's code.
    """
    if (where := place(error)) is not None:
        raise PluginFault(f"{doing}: {_said(error)} ({where}). Correct the plugin.") from error


def place(error: BaseException) -> str | None:
    """Innermost line of a plugin's code that an error went through (`mine.py, line 12, in decide`), if any."""
    for one in _chain(error):
        if isinstance(one, SyntaxError) and one.filename is not None and is_watched(one.filename):
            return f"{one.filename}, line {one.lineno}"
        for frame in reversed(traceback.extract_tb(one.__traceback__)):
            if is_watched(frame.filename):
                return f"{frame.filename}, line {frame.lineno}, in {frame.name}"
    return None


def in_plugin(kind: type) -> str:
    """The name of a class, with the file where it is a plugin's."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return f"{kind.__name__} ({file})" if is_watched(file) else kind.__name__


def is_exit_of_plugin(error: SystemExit) -> bool:
    """Whether a plugin itself ended the process, and not a signal while it ran."""
    return is_watched(ended_by(error))


def check_interrupt(error: BaseException) -> None:
    """Refuse a plugin's own `raise KeyboardInterrupt`, or another way to say so: nobody asked to stop.

    Raises:
        PluginFault: It is one.
    """
    if is_own_interrupt(error):
        raise PluginFault(f"{_said(error)} ({place(error)}). Correct the plugin.") from error


def is_own_interrupt(error: BaseException) -> bool:
    """Whether a plugin raised it itself; of Ctrl-C and a signal the innermost line is that of our answer to it."""
    *_, raised = ["", *(frame.filename for frame in traceback.extract_tb(error.__traceback__))]
    return is_watched(raised)


def ended_by(error: SystemExit) -> str:
    """The file of the code that ended the process."""
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    own = [name for name in frames if "_sitebuiltins" not in name]  # where `exit` and `quit` are written
    return own[-1] if own else ""


def explained(error: BaseException, suspect: str | None = None) -> AdaptiveBenchError:
    """An error of any type as one of ours, with what to do about it.

    Args:
        suspect: The plugin that was at work, if one was: it is blamed where nothing else speaks against it.
    """
    if isinstance(error, AdaptiveBenchError):
        return _ours(error)
    what = _said(error)
    if (where := place(error)) is not None:
        return PluginFault(
            f"{what} ({where}). Correct the plugin; of a method, `adaptive-bench check` tries all that it does."
        )
    if _is_out_of_memory(error):
        return EnvironmentProblem(
            "Memory ran out. Choose a smaller --model, or a machine or --device with more memory."
        )
    if isinstance(error, ImportError) and (package := _not_importable(error)) is not None:
        return EnvironmentProblem(
            f"adaptive-bench needs the package {package!r}, but it cannot be imported here: {what}. Install it into "
            f"this Python, `{sys.executable} -m pip install {package}`, and give the same command again."
        )
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return UsageError(
            f"A file's name has at most 255 bytes, and a path 4,096, got {one_line(str(error.filename), 60)!r}. Give a "
            f"shorter one."
        )
    if (isinstance(error, OSError) and error.errno in _MACHINE) or _is_loop(error):
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


def _ours(error: AdaptiveBenchError) -> AdaptiveBenchError:
    """One of our errors as it is; with its line, where it is a plugin's code that raised it and not ours below it, or
    where ours refuses what that line gave.

    A plugin may say what is wrong with a request or with the surroundings. Nothing else is its to say: a defect of this
    package, say, or an interrupt.
    """
    *_, raised = [None, *traceback.extract_tb(error.__traceback__)]
    if raised is None or not is_watched(raised.filename):
        called = place(error) if type(error) is PluginFault else None
        return error if called is None or called in str(error) else PluginFault(f"{error} It was given in {called}.")
    where = f"{raised.filename}, line {raised.lineno}, in {raised.name}"
    for kind in (UsageError, EnvironmentProblem):
        if isinstance(error, kind):
            return kind(f"{message_of(error)} The plugin says so ({where}).")
    return PluginFault(f"{_said(error)} ({where}). Correct the plugin.")


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {message_of(error)}".rstrip(": .")


def _is_out_of_memory(error: BaseException) -> bool:
    said = isinstance(error, RuntimeError) and any(words in message_of(error) for words in _NO_MEMORY)
    return said or isinstance(error, MemoryError)


def _is_loop(error: BaseException) -> bool:
    """Whether links lead in a circle, of which `Path.resolve` makes no OSError before Python 3.13."""
    return isinstance(error, RuntimeError) and str(error).startswith("Symlink loop")


def _not_importable(error: ImportError) -> str | None:
    """The package that this distribution requires and that an import failed at: the one that was asked for, or the
    innermost one that asked for something else. `None` where it is none of these, as with a module of our own.
    """
    from importlib.metadata import requires  # when something has failed: it takes a tenth of `--help`

    required = {_normalised(text) for text in requires("adaptive-bench") or ()}
    required -= {"adaptive-bench"}  # by its own extras
    frames = [str(frame.f_globals.get("__name__", "")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    asked = [error.name or "", *reversed(frames)]
    return next((name for one in asked if (name := _normalised(one.partition(".")[0])) in required), None)


def _normalised(requirement: str) -> str:
    """The name in a requirement or of a module, as packages are called: `lm-eval` of `lm_eval` and `lm_eval[hf]>=1`."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return "" if found is None else re.sub(r"[-_.]+", "-", found[0]).lower()


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it arose from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def is_watched(filename: str) -> bool:
    """Whether it is a plugin's file."""
    if any(filename == known or filename.startswith(known + os.sep) for known in _watched):
        return True
    inside = [filename.removeprefix(folder) for folder in _of_tasks if filename.startswith(folder)]
    return any(_INSTALLED.isdisjoint(Path(rest).parts) for rest in inside) and not filename.startswith(_OWN)
