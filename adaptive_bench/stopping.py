"""Handles requests to stop: work goes on to a point from which it can be resumed, saves its state, and ends.

Schedulers send a signal before they take a machine away: SIGUSR1 some time before the limit, SIGTERM before SIGKILL.
Users press Ctrl-C; a second Ctrl-C stops at once. Training calls `requested` where it can save its state; code that
counts progress calls `check`.
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
    """The work was asked to stop and has saved its state. This is no `Exception`, so it never counts as a failure."""


def request() -> None:
    """Ask this process to stop."""
    _asked.set()


def requested() -> bool:
    """Whether this process was asked to stop."""
    return _asked.is_set()


def check() -> None:
    """End the current work if this process was asked to stop.

    Raises:
        Stopped: A signal asked for it.
        KeyboardInterrupt: The user pressed Ctrl-C.
    """
    if _by_hand.is_set():
        raise KeyboardInterrupt
    if _asked.is_set():
        raise Stopped


@contextmanager
def listening() -> Iterator[None]:
    """Within the block, take SIGUSR1, SIGTERM and the first Ctrl-C as requests to stop. This has an effect only in the
    main thread of a process.
    """

    def ask(number: int, frame: FrameType | None) -> None:
        request()

    def ask_by_hand(number: int, frame: FrameType | None) -> None:
        if _by_hand.is_set():
            raise KeyboardInterrupt
        _by_hand.set()
        request()
        with suppress(OSError):
            os.write(2, _WORD)  # not `print`, which the signal may have interrupted

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
