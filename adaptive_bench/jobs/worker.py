"""The code of a worker process: it gets ready, works, sends events, and ends with the process that started it.

Each worker has a pipe of its own for its events, so that a worker that is killed in the middle of an event, or while it
holds a lock, cannot silence the others.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, redirect_stdout, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from pathlib import Path
from types import TracebackType

import torch

from adaptive_bench import free_memory, registry, stopping
from adaptive_bench.errors import one_line
from adaptive_bench.jobs.job import Failure, Job, run_job
from adaptive_bench.progress import Event, Line, Reporter, TaskFinished, TaskStarted


class RemoteReporter(Reporter):
    """The reporter of a worker process."""

    def __init__(self, sender: Connection) -> None:
        self._sender = sender
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        """Send an event to the parent, if it still listens."""
        with self._lock, suppress(OSError):
            self._sender.send(event)


class ProgressQueue(AbstractContextManager["ProgressQueue"]):
    """Passes the events of workers to a reporter of this process; on exit all of them have been passed on."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def sender(self, context: BaseContext, moved: Callable[[], None] = lambda: None) -> Connection:
        """Return the sending end of a new pipe for a worker. Close it in this process when the worker is gone.

        Args:
            moved: Called whenever the worker has made progress; a mere line of text is no progress.
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
        with suppress(EOFError, OSError):  # the worker is gone, perhaps in the middle of an event
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


_LONGEST = 300  # characters of a line


class StdoutForwarder(io.TextIOBase):
    """A stream for `print` whose lines go to a reporter, cut and without control sequences of terminals."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self._begun, self._outside = "", sys.stdout

    def writable(self) -> bool:
        """Whether the stream can be written: always."""
        return True

    def write(self, text: str) -> int:
        """Report whole lines, and keep the rest until its line ends."""
        *whole, self._begun = (self._begun + text).split("\n")
        with redirect_stdout(self._outside):  # a reporter may print
            for shown in filter(None, (one_line(line, _LONGEST) for line in whole)):
                self.reporter.line(shown)
        return len(text)


GRACE_S = 10.0  # time that a stopped worker has to save its state
_reporter: RemoteReporter | None = None
_busy = False


def start_worker(sender: Connection, alive: Connection, threads: int, plugins: list[Path], workers: int = 1) -> None:
    """Get this process ready to work for the one that started it.

    Args:
        sender: Pipe for its events.
        alive: Pipe whose other end the parent holds: when that is closed, or the parent is gone, this process ends.
        threads: Number of threads, its share of the cores.
        plugins: Plugin files to load.
        workers: Number of worker processes that share the memory.
    """
    global _reporter
    # Ctrl-C reaches the whole process group; the parent decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_stop_with_parent, args=(alive,), daemon=True).start()
    torch.set_num_threads(threads)
    free_memory.share_among(workers)
    _reporter = RemoteReporter(sender)
    sys.stdout = sys.stderr = StdoutForwarder(_reporter)
    registry.load_plugins(plugins)


def _stop_with_parent(alive: Connection) -> None:
    """Wait until the parent closes its end of the pipe or is gone; then let this process save its state, and end it."""
    alive.poll(None)
    stopping.request()
    _wait_until_idle()
    os.kill(os.getpid(), signal.SIGTERM)  # if the work has not stopped by then, it is interrupted
    _wait_until_idle()
    os._exit(1)


def _wait_until_idle() -> None:
    end_s = time.monotonic() + GRACE_S / 2
    while _busy and time.monotonic() < end_s:
        time.sleep(0.05)


def _leave(*_: object) -> None:
    """On SIGTERM, interrupt the work under way so that it can save its state; without any work, exit at once."""
    if not _busy:
        os._exit(1)
    sys.exit(1)


def run_in_worker(job: Job) -> list[Failure]:
    """Run a job in this process, which `start_worker` has made ready. If the process is asked to end meanwhile, the job
    has some seconds to save its state.
    """
    global _busy
    assert _reporter is not None
    _busy = True
    try:
        return run_job(job, _reporter)
    finally:
        _busy = False
