"""What Ctrl-C does while nothing else answers it (see `stopping`): the command ends with one line and exit code 130.

It is an exception as usual, except while Python loads modules. There an exception is lost or turned into another one: a
library takes it for a missing package, or its C++ aborts. Nothing is under way then, so the process just ends.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

WORD = "Stopped. Finished work is kept; give the same command again."
EXIT_CODE = 130  # as a shell counts: 128, and the number of the signal
_NEW_LINE = "\x1b[?25h\n"  # on a terminal, with the cursor that a moving line may have hidden
_seen = threading.Event()


@contextmanager
def answered(*, last: bool = False) -> Iterator[None]:
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


def was_cause(error: BaseException) -> bool:
    """Whether Ctrl-C is behind an error, which may tell of something else: code above it caught it and went on."""
    return behind(error) is not None or (_seen.is_set() and not isinstance(error, SystemExit))


def behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that an error is, or arose from."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def _answer(number: int, frame: FrameType | None) -> None:
    if _loads_modules(frame):
        with suppress(OSError):
            os.write(2, f"{_NEW_LINE if os.isatty(2) else ''}Interrupted: {WORD}\n".encode())
        os._exit(EXIT_CODE)
    _seen.set()
    raise KeyboardInterrupt


def _loads_modules(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
