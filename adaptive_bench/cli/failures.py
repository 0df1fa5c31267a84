"""What a user sees when something goes wrong: one paragraph and an exit code; the traceback only with `--debug`."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from adaptive_bench.cli import interrupts
from adaptive_bench.cli.tables import terminal_width, wrapped
from adaptive_bench.errors import AdaptiveBenchError, Interrupted, SeveralProblems, message_of
from adaptive_bench.faults import explained
from adaptive_bench.progress import say

_WIDEST = 100  # lines that are longer are hard to read


@contextmanager
def reported(debug: bool) -> Iterator[None]:
    """End the process with one paragraph on stderr, before it with `debug` the traceback.

    The paragraph begins with the kind of the error (see `errors`).
    """
    try:
        yield
    except SystemExit as error:
        if not interrupts.was_cause(error):
            raise
        _end(error, debug)
    except BaseException as error:  # noqa: BLE001 - the outermost boundary: the process ends
        _end(error, debug)


def paragraph(text: str) -> str:
    """Text as lines of a readable width that fit the terminal. Paths and commands are meant for copying: they are never
    broken.
    """
    return wrapped(text, min(_WIDEST, terminal_width()))


def _end(error: BaseException, debug: bool) -> None:
    explanation: AdaptiveBenchError = explained(error)
    if not isinstance(error, Interrupted) and interrupts.was_cause(error):
        explanation = Interrupted(interrupts.WORD)
    if isinstance(explanation, Interrupted):  # what is left is the clean-up of libraries, and they complain aloud
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if debug:
        traceback.print_exception(error)
    for problem in explanation.errors if isinstance(explanation, SeveralProblems) else (explanation,):
        say(paragraph(f"{problem.kind}: {message_of(problem)}"), sys.stderr)
    sys.exit(explanation.exit_code)
