"""A polite request to stop: work goes on to a place from which it can be resumed, keeps that, and ends.

Schedulers ask before they take a machine away: a signal some time before the limit, SIGTERM before SIGKILL. People ask
with Ctrl-C, and with a second one do not ask any more. Training asks `requested` where it could save; whoever counts
progress calls `check`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGUSR1, signal.SIGTERM)
_asked = threading.Event()
_by_hand = threading.Event()
_WORD = b"\nStopping where it can continue from; Ctrl-C again stops at once.\n"


class Stopped(BaseException):
    """The work was asked to stop and has kept where it stands. No `Exception`: nobody takes it for a failure."""


def request() -> None:
    """Ask this process to stop."""
    _asked.set()


def requested() -> bool:
    """Whether this process was asked to stop."""
    return _asked.is_set()


def check() -> None:
    """End the work under way if this process was asked to stop.

    Raises:
        Stopped: It was.
        KeyboardInterrupt: It was, with Ctrl-C.
    """
    if _by_hand.is_set():
        raise KeyboardInterrupt
    if _asked.is_set():
        raise Stopped


@contextmanager
def listening() -> Iterator[None]:
    """In the block SIGUSR1, SIGTERM and the first Ctrl-C are such requests; only the main thread of a process can
    listen.
    """

    def ask(number: int, frame: FrameType | None) -> None:
        request()

    def ask_by_hand(number: int, frame: FrameType | None) -> None:
        if _by_hand.is_set():
            raise KeyboardInterrupt
        _by_hand.set()
        request()
        with suppress(OSError):
            os.write(2, _WORD)  # `print` may just be at work

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, ask) for number in SIGNALS}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, ask_by_hand)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _asked.clear()
        _by_hand.clear()
