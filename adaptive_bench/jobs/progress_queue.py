"""Progress across processes: each worker has a pipe for its events, and the parent a thread that passes them on.

A pipe each: a worker that is killed in the middle of an event, or with a lock in its hand, silences nobody else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from types import TracebackType

from adaptive_bench.progress import Event, Line, Reporter, TaskFinished, TaskStarted


class RemoteReporter(Reporter):
    """The reporter of a worker process."""

    def __init__(self, sender: Connection) -> None:
        self._sender = sender
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        """Send an event, if somebody listens."""
        with self._lock, suppress(OSError):
            self._sender.send(event)


class ProgressQueue(AbstractContextManager["ProgressQueue"]):
    """Gives a reporter of this process the events of workers; at its end it has all of them."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def sender(self, context: BaseContext, moved: Callable[[], None] = lambda: None) -> Connection:
        """The end of a new pipe for a worker. Close it here when the worker is gone.

        Args:
            moved: Called whenever the worker has got further; what it merely says is no progress.
        """
        listener, sender = context.Pipe(duplex=False)
        thread = threading.Thread(target=self._listen, args=(listener, moved), daemon=True)
        thread.start()
        self._threads.append(thread)
        return sender

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for thread in self._threads:
            thread.join()

    def _listen(self, listener: Connection, moved: Callable[[], None]) -> None:
        open_tasks: dict[str, None] = {}
        with suppress(EOFError, OSError):  # it is gone, perhaps in the middle of an event
            while True:
                event: Event = listener.recv()
                if not isinstance(event, Line):
                    moved()
                if isinstance(event, TaskStarted):
                    open_tasks[event.task] = None
                if isinstance(event, TaskFinished):
                    open_tasks.pop(event.task, None)
                with self._lock:
                    self._reporter.emit(event)
        with self._lock:
            for task in open_tasks:
                self._reporter.emit(TaskFinished(task))
