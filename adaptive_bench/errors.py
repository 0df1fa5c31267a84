"""Defines the kinds of errors that a user can meet, by whose fault they are: each has a name and an exit code.

Four kinds matter most: a wrong request, a problem of the environment, a faulty plugin, and a defect of this package.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LONGEST = 2000  # characters of one message on the screen; logs keep the whole message
# Escape sequences, other control characters except line ends and tabs, and marks that change the writing direction.
_UNPRINTABLE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    "|[\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


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
