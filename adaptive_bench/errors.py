"""Defines the kinds of errors that a user can meet, by whose fault they are: each has a name and an exit code.

Four kinds matter most: a wrong request, a problem of the environment, a faulty plugin, and a defect of this package.
`explained` decides which of them an unexpected error is; code of plugins is known by its files (`watch`).
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

_LONGEST = 2000  # characters of one message on the screen; logs keep the whole message
# Escape sequences, other control characters except line ends and tabs, and marks that change the writing direction.
_UNPRINTABLE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    "|[\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_watched: set[Path] = set()  # files and folders with the code of plugins
_INSTALLED = {"site-packages", "dist-packages"}
_OWN = Path(__file__).resolve().parent
# How torch reports lack of memory, in a `RuntimeError` or its subclass `OutOfMemoryError`.
_NO_MEMORY = ("out of memory", "can't allocate memory", "CUDNN_STATUS_NOT_SUPPORTED")


class AdaptiveBenchError(Exception):
    """Something the user can act on. The message states the rule, the value received and the next step."""

    exit_code = 1
    kind = "Error"


class UsageError(AdaptiveBenchError):
    """The request itself is wrong: unknown name, bad spec, bad config, dial out of range."""

    exit_code = 2
    kind = "Usage error"


class EnvironmentProblem(AdaptiveBenchError):
    """The request is fine but the environment is not: data or model out of reach, no write access, out of memory."""

    kind = "Environment problem"


class PluginFault(AdaptiveBenchError):
    """A plugin's code fails or returns something invalid; the message says where, and what to do."""

    kind = "Plugin fault"


class Defect(AdaptiveBenchError):
    """This package fails at something that it should be able to do."""

    kind = "Defect of adaptive-bench"


class TrainingDiverged(AdaptiveBenchError):
    """The training loss stopped being a finite number."""

    kind = "Training diverged"


class NotFinite(AdaptiveBenchError):
    """A model's logits are not finite numbers, so it has no score."""

    kind = "Result not finite"


class Superseded(AdaptiveBenchError):
    """Another process has taken over the same work."""

    kind = "Taken over"


class CellTimeout(AdaptiveBenchError):
    """One piece of work took longer than the user's limit."""

    kind = "Time limit"


class Interrupted(AdaptiveBenchError):
    """The user stopped the run; what is on disk can be resumed."""

    exit_code = 130  # as in a shell: 128 plus the number of SIGINT, which Ctrl-C sends
    kind = "Interrupted"


class ToBeContinued(Interrupted):
    """A scheduler asked the run to stop; re-running the command continues it."""

    exit_code = 75  # EX_TEMPFAIL
    kind = "Asked to stop"


class SeveralProblems(AdaptiveBenchError):
    """Several errors that were found together.

    Args:
        errors: The errors.
    """

    kind = "Several problems"

    def __init__(self, errors: Sequence[AdaptiveBenchError]) -> None:
        super().__init__(" ".join(f"({number}) {error.kind}: {error}" for number, error in enumerate(errors, 1)))
        self.errors = tuple(errors)
        self.exit_code = max(error.exit_code for error in errors)


def message_of(error: BaseException) -> str:
    """Return the message of an error as one printable line, even if the error cannot be converted to text."""
    try:
        text = str(error)
    except Exception as again:  # noqa: BLE001 - the message may be foreign code too
        text = f"(its message cannot be shown: {type(again).__name__})"
    return one_line(text)


def one_line(text: str, longest: int = _LONGEST) -> str:
    """Return foreign text as one printable line of limited length."""
    line = " ".join(_UNPRINTABLE.sub("", text[: 8 * longest]).split())
    return line if len(line) <= longest else f"{line[:longest]} ... (cut, {len(text)} characters)"


def watch(path: Path) -> None:
    """Remember that code in this file or folder belongs to a plugin, except for packages installed below the folder."""
    _watched.update((path.absolute(), path.resolve()))


def is_watched(filename: str) -> bool:
    """Whether a file belongs to a plugin."""
    path = Path(filename)
    inside = [path.relative_to(one).parts for one in _watched if path.is_relative_to(one)]
    return any(map(_INSTALLED.isdisjoint, inside)) and not path.is_relative_to(_OWN)


def plugin_line(error: BaseException | None) -> str | None:
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
    if (where := plugin_line(error)) is not None:
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
    what, where = _said(error), plugin_line(error)
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
