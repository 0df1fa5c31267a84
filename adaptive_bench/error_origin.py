"""Decides whose fault an unexpected error is: a plugin's (named by file and line), the machine's, or this package's."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from adaptive_bench.errors import AdaptiveBenchError, Defect, EnvironmentProblem, PluginFault, message_of

_watched: set[Path] = set()  # files and folders with the code of plugins
_INSTALLED = {"site-packages", "dist-packages"}
_OWN = Path(__file__).resolve().parent
# How torch reports lack of memory, in a `RuntimeError` or its subclass `OutOfMemoryError`.
_NO_MEMORY = ("out of memory", "can't allocate memory", "CUDNN_STATUS_NOT_SUPPORTED")


def watch(path: Path) -> None:
    """Remember that code in this file or folder belongs to a plugin, except for packages installed below the folder."""
    _watched.update((path.absolute(), path.resolve()))


def is_watched(filename: str) -> bool:
    """Whether a file belongs to a plugin."""
    path = Path(filename)
    inside = [path.relative_to(one).parts for one in _watched if path.is_relative_to(one)]
    return any(map(_INSTALLED.isdisjoint, inside)) and not path.is_relative_to(_OWN)


def place(error: BaseException | None) -> str | None:
    """Return the innermost line of plugin code (`mine.py, line 12, in decide`) in the traceback of an error or of the
    errors that caused it; `None` if there is none.
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
    """Blame a plugin for an error if the error went through its code; otherwise do nothing.

    Args:
        doing: Beginning of the message, such as `The task 'mine' cannot be set up`.

    Raises:
        PluginFault: The error went through a plugin's code.
    """
    if (where := place(error)) is not None:
        raise PluginFault(f"{doing}: {_said(error)} ({where}). Correct the plugin.") from error


def in_plugin(kind: type) -> str:
    """Return the name of a class, followed by its file if it belongs to a plugin."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return f"{kind.__name__} ({file})" if is_watched(file) else kind.__name__


def explained(error: BaseException, suspect: str | None = None) -> AdaptiveBenchError:
    """Turn an error of any type into an `AdaptiveBenchError` that says what to do about it.

    Args:
        suspect: The plugin that was running, if any; it is blamed if the error shows no other cause.
    """
    what, where = _said(error), place(error)
    if isinstance(error, AdaptiveBenchError):
        is_said = type(error) is not PluginFault or where is None or where in str(error)
        return error if is_said else PluginFault(f"{error} It was given in {where}.")
    if where is not None:
        return PluginFault(
            f"{what} ({where}). Correct the plugin; for a method, `adaptive-bench check` tries everything it does."
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
    if isinstance(error, OSError) and error.errno is not None:
        return EnvironmentProblem(f"The system refused: {what}. Correct that and give the same command again.")
    if suspect is not None:
        step = "`adaptive-bench check` says which rule it breaks."
        if not suspect.startswith("the method"):
            step = "Check what the filters, metrics and aggregations of its YAML file take and return."
        return PluginFault(
            f"{what}. It happened in adaptive-bench while {suspect} was running, most likely because of what it "
            f"returned. {step}"
        )
    return Defect(
        f"{what}. Finished work is kept on disk. The same command with --debug shows where it happened; please report "
        "it with what it shows."
    )


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {message_of(error)}".rstrip(": .")
