"""The command line `adaptive-bench`, and how a command ends when something goes wrong: with one paragraph and an exit
code for an error, with one line for Ctrl-C.

Ctrl-C raises an exception as usual (see also `stopping`), except while Python loads modules. There an exception gets
lost or turned into another one: a library takes it for a missing package, or its C++ code aborts. No work is under way
at that time, so the process just ends. Only the standard library is imported here before Ctrl-C is handled.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

WORD = "Stopped. Finished work is kept; give the same command again."
EXIT_CODE = 130  # the shells' convention: 128 plus the number of the signal
_NEW_LINE = "\x1b[?25h\n"  # for a terminal; it also shows the cursor, which a moving line may have hidden
_seen = threading.Event()  # Ctrl-C has raised, even if a library turned the interrupt into another error


def main() -> None:
    """Entry point of the `adaptive-bench` script."""
    # PyTorch's threads (libgomp) spin while they wait for each other. With another busy program on two cores, SmolLM2
    # decoded 12 tokens in 27 s, and with this bound in 4 to 12 s. On an idle machine both take 0.7 s.
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")
    with ctrl_c_answered():
        from io import TextIOWrapper

        from adaptive_bench.cli.program import app

        if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="replace")  # help has characters that some terminals' encodings lack
        with reported(debug="--debug" in sys.argv):
            app()


@contextmanager
def ctrl_c_answered() -> Iterator[None]:
    """Handle Ctrl-C in the block as described above, and ignore it after the block: everything is written then, and it
    would only replace the exit code.
    """
    signal.signal(signal.SIGINT, _answer)
    try:
        yield
    finally:
        _seen.clear()
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _answer(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":  # an outer frame is loading a module
            with suppress(OSError):
                # Not `print`, in whose midst the signal may have come.
                os.write(2, f"{_NEW_LINE if os.isatty(2) else ''}Interrupted: {WORD}\n".encode())
            os._exit(EXIT_CODE)  # an exception would have to get through the import
        frame = frame.f_back
    _seen.set()
    raise KeyboardInterrupt


def _interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that an error is, or that it arose from after a library had caught the interrupt."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


@contextmanager
def reported(debug: bool) -> Iterator[None]:
    """End the process with one paragraph on stderr that begins with the kind of the error (see `errors`); with `debug`
    the traceback stands before it.
    """
    try:
        yield
    except BaseException as error:
        # Typer turns an interrupt into `SystemExit`, with the interrupt behind it; any other one is meant.
        if isinstance(error, SystemExit) and _interrupt_behind(error) is None:
            raise
        _end(error, debug)


def _end(error: BaseException, debug: bool) -> None:
    from adaptive_bench.cli.terminal_text import paragraph
    from adaptive_bench.errors import AdaptiveBenchError, Interrupted, SeveralProblems, explained, message_of
    from adaptive_bench.progress import say

    explanation: AdaptiveBenchError = explained(error)
    # An `Interrupted` already has a message that fits the command.
    if not isinstance(error, Interrupted) and (_interrupt_behind(error) is not None or _seen.is_set()):
        explanation = Interrupted(WORD)
    if isinstance(explanation, Interrupted):  # libraries print complaints if their clean-up is interrupted again
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if debug:
        traceback.print_exception(error)
    for problem in explanation.errors if isinstance(explanation, SeveralProblems) else (explanation,):
        say(paragraph(f"{problem.kind}: {message_of(problem)}"), sys.stderr)
    sys.exit(explanation.exit_code)
