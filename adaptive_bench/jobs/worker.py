"""Starts worker processes, and does the jobs that come through the pipe of one: it sends events and results back, and
ends with the process that started it.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import sys
import threading
import time
from contextlib import redirect_stdout, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import torch

from adaptive_bench import hardware, registry, stopping
from adaptive_bench.errors import UsageError, one_line
from adaptive_bench.jobs.job import Job, run_job
from adaptive_bench.progress import Event, Reporter

GRACE_S = 10.0  # time that a stopped worker has to save its state
_LONGEST = 300  # characters of a line


class RemoteReporter(Reporter):
    """The reporter of a worker process."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        """Send an event to the parent, if it still listens."""
        self.send(event)

    def send(self, thing: object) -> None:
        """Send an event or a result."""
        with self._lock, suppress(OSError):
            self._pipe.send(thing)


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


def work(pipe: Connection, threads: int, plugins: list[Path], workers: int) -> None:
    """Do the jobs that come through a pipe, until its other end is closed or the process that holds it is gone. The
    threads are this process's share of the cores, and so many workers share the memory.
    """
    reporter = RemoteReporter(pipe)
    sys.stdout = sys.stderr = StdoutForwarder(reporter)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # an exception, so that the job can save its state
    # A thread reads the pipe, so that its end is noticed while a job computes.
    jobs: SimpleQueue[bytes | None] = SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, jobs), daemon=True).start()
    torch.set_num_threads(threads)
    hardware.share_among(workers)
    registry.load_plugins(plugins)
    with suppress(stopping.Stopped):
        while (pickled := jobs.get()) is not None:
            reporter.emit(Event())  # the job's time begins, also if it never says anything
            job: Job = ForkingPickler.loads(pickled)  # not in the other thread: plugins must be loaded before
            reporter.send(run_job(job, reporter))


def _receive(pipe: Connection, jobs: SimpleQueue[bytes | None]) -> None:
    """Take jobs until the pipe is closed; then give a job under way some seconds to save its state."""
    with suppress(EOFError, OSError):
        while True:
            jobs.put(pipe.recv_bytes())
    jobs.put(None)  # ends a worker that waits for a job
    stopping.request()
    time.sleep(GRACE_S / 2)
    os.kill(os.getpid(), signal.SIGTERM)  # if the job has not stopped by then, it is interrupted
    time.sleep(GRACE_S / 2)
    os._exit(1)  # if the main thread never returned to Python, where signals are handled


class _WithoutMain(SpawnProcess):
    """A process that does not run the program's main file (as `__mp_main__`, which is Python's default), and with it a
    call of `run` that is not guarded by `if __name__ == "__main__":`.
    """

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")  # has no `__file__`, so `multiprocessing` runs no main file
        try:
            return SpawnProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = main


def spawn_context() -> SpawnContext:
    """Return a context whose processes run the program's main file again only if they need what it registers."""
    context = SpawnContext()
    if not registry.needs_main():
        context.Process = _WithoutMain  # type: ignore[misc]
    return context


def check_main() -> None:
    """Refuse (`UsageError`) to start processes from one that was itself just started and still runs the main file."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # multiprocessing itself checks this
        main = getattr(sys.modules["__main__"], "__file__", None) or sys.argv[0]
        raise UsageError(
            f"The processes of a run get what a script registers by running the script again, so the script must not "
            f'begin a run unguarded, got {main}. Put the call under if __name__ == "__main__":, or move what is '
            f"registered to a file of its own and load that with load_plugin."
        )
