"""How a command ends when something goes wrong: an error is one paragraph and an exit code, Ctrl-C one line.

Ctrl-C is an exception as usual (see also `stopping`), except while Python loads modules. There an exception is lost or
turned into another one: a library takes it for a missing package, or its C++ aborts. Nothing is under way then, so the
process just ends. Nothing but the standard library is imported here before Ctrl-C has an answer.
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
EXIT_CODE = 130  # as a shell counts: 128, and the number of the signal
_NEW_LINE = "\x1b[?25h\n"  # on a terminal, with the cursor that a moving line may have hidden
_seen = threading.Event()


@contextmanager
def ctrl_c_answered(*, last: bool = False) -> Iterator[None]:
    """In the block Ctrl-C is answered so; only the main thread of a process can do that.

    Args:
        last: Whether the process ends with the block. All is said and written then, and Ctrl-C is ignored: it would
            only replace the exit code.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _answer)
    try:
        yield
    finally:
        _seen.clear()
        if signal.getsignal(signal.SIGINT) is _answer:  # else the process ends, and ignores it meanwhile
            signal.signal(signal.SIGINT, signal.SIG_IGN if last else before)


def _answer(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            with suppress(OSError):
                os.write(2, f"{_NEW_LINE if os.isatty(2) else ''}Interrupted: {WORD}\n".encode())
            os._exit(EXIT_CODE)
        frame = frame.f_back
    _seen.set()
    raise KeyboardInterrupt


def interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that an error is, or arose from: code above it may have caught it and gone on."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


@contextmanager
def reported(debug: bool) -> Iterator[None]:
    """End the process with one paragraph on stderr, before it with `debug` the traceback.

    The paragraph begins with the kind of the error (see `errors`).
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, SystemExit) and interrupt_behind(error) is None:
            raise
        _end(error, debug)


def _end(error: BaseException, debug: bool) -> None:
    from adaptive_bench.cli.terminal_text import paragraph
    from adaptive_bench.errors import AdaptiveBenchError, Interrupted, SeveralProblems, message_of
    from adaptive_bench.faults import explained
    from adaptive_bench.progress import say

    explanation: AdaptiveBenchError = explained(error)
    if not isinstance(error, Interrupted) and (interrupt_behind(error) is not None or _seen.is_set()):
        explanation = Interrupted(WORD)
    if isinstance(explanation, Interrupted):  # what is left is the clean-up of libraries, and they complain aloud
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if debug:
        traceback.print_exception(error)
    for problem in explanation.errors if isinstance(explanation, SeveralProblems) else (explanation,):
        say(paragraph(f"{problem.kind}: {message_of(problem)}"), sys.stderr)
    sys.exit(explanation.exit_code)
