"""Progress across processes: each worker has a pipe for what it has to say, and the parent a thread that says it.

A pipe each: a worker that is killed in the middle of a word, or with a lock in its hand, silences nobody else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from types import TracebackType
from typing import Any
from uuid import uuid4

from adaptive_bench.progress import Info, Meter, Reporter

_OVERALL = "overall"


class RemoteReporter:
    """The reporter of a worker process."""

    def __init__(self, speaker: Connection) -> None:
        self._speaker = speaker
        self._lock = threading.Lock()
        self.overall = RemoteMeter(self, _OVERALL)

    def task(self, name: str, total: float) -> Meter:
        """See `Reporter`."""
        meter = RemoteMeter(self, uuid4().hex)
        self.say("task", meter.id, name, total)
        return meter

    def line(self, text: str) -> None:
        """See `Reporter`."""
        self.say("line", text)

    def say(self, *words: Any) -> None:
        """Send some words, if somebody listens."""
        with self._lock, suppress(OSError):
            self._speaker.send(words)


class RemoteMeter(Meter):
    """A meter whose display is in the parent process."""

    def __init__(self, reporter: RemoteReporter, identity: str) -> None:
        self.reporter, self.id = reporter, identity

    def advance(self, units: float = 1, **info: Info) -> None:
        """See `Meter`."""
        self.reporter.say("advance", self.id, units, info)

    def end(self) -> None:
        """See `Meter`."""
        self.reporter.say("end", self.id)


class Relay(AbstractContextManager["Relay"]):
    """Says in this process what workers have to say; at its end all of it is said.

    Args:
        overall: Moved by the workers' `RemoteReporter.overall`.
    """

    def __init__(self, reporter: Reporter, overall: Meter) -> None:
        self.reporter, self.overall = reporter, overall
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def speaker(self, context: BaseContext, moved: Callable[[], None] = lambda: None) -> Connection:
        """The end of a new pipe for a worker. Close it here when the worker is gone.

        Args:
            moved: Called whenever the worker has got further; what it merely says is no progress.
        """
        listener, speaker = context.Pipe(duplex=False)
        thread = threading.Thread(target=self._listen, args=(listener, moved), daemon=True)
        thread.start()
        self._threads.append(thread)
        return speaker

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for thread in self._threads:
            thread.join()

    def _listen(self, listener: Connection, moved: Callable[[], None]) -> None:
        meters: dict[str, Meter] = {}
        with suppress(EOFError, OSError):  # it is gone, perhaps in the middle of a word
            while True:
                words = listener.recv()
                if words[0] != "line":
                    moved()
                with self._lock:
                    self._say(words, meters)
        for meter in meters.values():
            meter.end()

    def _say(self, words: tuple[Any, ...], meters: dict[str, Meter]) -> None:
        match words:
            case ("line", text):
                self.reporter.line(text)
            case ("task", identity, name, total):
                meters[identity] = self.reporter.task(name, total)
            case ("advance", identity, units, info):
                (self.overall if identity == _OVERALL else meters[identity]).advance(units, **info)
            case ("end", identity):
                meters.pop(identity).end()
