"""A polite request to stop: work goes on to a place from which it can be resumed, keeps that, and ends.

Schedulers ask before they take a machine away: a signal some time before the limit, SIGTERM before SIGKILL. Training
asks `requested` where it could save; whoever counts progress calls `check`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGUSR1, signal.SIGTERM)
_asked = threading.Event()


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
    """
    if _asked.is_set():
        raise Stopped


@contextmanager
def listening() -> Iterator[None]:
    """In the block SIGUSR1 and SIGTERM are such requests; only the main thread of a process can listen."""

    def ask(number: int, frame: FrameType | None) -> None:
        request()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, ask) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _asked.clear()
