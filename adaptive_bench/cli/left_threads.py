"""Threads of plugins that keep the process from ending when its command is done."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

from adaptive_bench.cli.failures import paragraph
from adaptive_bench.errors import PluginFault
from adaptive_bench.faults import is_watched
from adaptive_bench.progress import say

_GRACE_S = 2.0  # that a thread has to end by itself


def tell_of_left_threads() -> None:
    """Say which thread Python is about to wait for, if a plugin left one; Ctrl-C ends the process then."""
    for thread in threading.enumerate():
        if thread.daemon or thread is threading.current_thread() or _place(thread) is None:
            continue
        thread.join(_GRACE_S)
        if (where := _place(thread)) is None:
            continue
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # everything is said and written, see `interrupts.answered`
        text = (
            f"A plugin leaves no thread that keeps a process from ending, but one is at work in {where}. The command "
            f"is done and ends with that thread, or by Ctrl-C. Start the thread with daemon=True."
        )
        say(paragraph(f"{PluginFault.kind}: {text}"), sys.stderr)
        return


def _place(thread: threading.Thread) -> str | None:
    """The innermost line of a plugin that a thread is at; `None` where it runs none."""
    frame: FrameType | None = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if is_watched(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}, line {frame.f_lineno}, in {frame.f_code.co_name}"
        frame = frame.f_back
    return None
