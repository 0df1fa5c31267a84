"""One root for every error a user can meet; each kind has its name and the exit code of the command line.

There are four kinds to tell apart: what the user asked for, what the surroundings lack, what a plugin does wrong, and
what this package does wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LONGEST = 2000  # characters of one message on the screen; logs keep the whole
# Escape sequences, other control characters but line ends and tabs, and marks that turn the direction of writing.
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
    """The request is fine, the surroundings are not: data or model out of reach, folder not writable, out of memory."""

    kind = "Environment problem"


class PluginFault(AdaptiveBenchError):
    """A plugin's own code fails, or gives what it must not give; the message says where and what to do."""

    kind = "Plugin fault"


class Defect(AdaptiveBenchError):
    """This package fails at something it should be able to do."""

    kind = "Defect of adaptive-bench"


class TrainingDiverged(AdaptiveBenchError):
    """The training loss stopped being a finite number."""

    kind = "Training diverged"


class NotFinite(AdaptiveBenchError):
    """A model's logits are no finite numbers, so that it has no score."""

    kind = "Result not finite"


class Superseded(AdaptiveBenchError):
    """Somebody else has taken over the same work."""

    kind = "Taken over"


class CellTimeout(AdaptiveBenchError):
    """One piece of work took longer than the user allows any."""

    kind = "Time limit"


class Interrupted(AdaptiveBenchError):
    """The user stopped the run; what is on disk can be resumed."""

    exit_code = 130  # as a shell counts: 128, and the number of the signal that Ctrl-C sends
    kind = "Interrupted"


class ToBeContinued(Interrupted):
    """A scheduler asked the run to stop; re-running the command continues it."""

    exit_code = 75  # EX_TEMPFAIL
    kind = "Asked to stop"


class SeveralProblems(AdaptiveBenchError):
    """Several errors that were found together.

    Args:
        errors: Each of them.
    """

    kind = "Several problems"

    def __init__(self, errors: Sequence[AdaptiveBenchError]) -> None:
        super().__init__(" ".join(f"({number}) {error.kind}: {error}" for number, error in enumerate(errors, 1)))
        self.errors = tuple(errors)
        self.exit_code = max(error.exit_code for error in errors)


def message_of(error: BaseException) -> str:
    """What an error says, in one line fit for a terminal; some errors cannot even be turned into text."""
    try:
        text = str(error)
    except Exception as again:  # noqa: BLE001 - the message may be foreign code too
        text = f"(its message cannot be shown: {type(again).__name__})"
    return one_line(text)


def one_line(text: str, longest: int = _LONGEST) -> str:
    """Foreign text as one printable line of a sane length."""
    line = " ".join(_UNPRINTABLE.sub("", text[: 8 * longest]).split())
    return line if len(line) <= longest else f"{line[:longest]} ... (cut, {len(text)} characters)"
