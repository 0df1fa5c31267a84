"""The code of a worker process: it does the jobs that come through its pipe, sends events and results back, and ends
with the process that started it.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from contextlib import redirect_stdout, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue

import torch

from adaptive_bench import free_memory, registry, stopping
from adaptive_bench.errors import one_line
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
    """Do the jobs that come through a pipe, until its other end is closed or the process that holds it is gone.

    Args:
        threads: Number of threads, this process's share of the cores.
        plugins: Plugin files to load.
        workers: Number of worker processes that share the memory.
    """
    reporter = RemoteReporter(pipe)
    sys.stdout = sys.stderr = StdoutForwarder(reporter)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # an exception, so that the job can save its state
    jobs: SimpleQueue[Job | None] = SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, jobs), daemon=True).start()
    torch.set_num_threads(threads)
    free_memory.share_among(workers)
    registry.load_plugins(plugins)
    with suppress(stopping.Stopped):
        while (job := jobs.get()) is not None:
            reporter.send(run_job(job, reporter))


def _receive(pipe: Connection, jobs: SimpleQueue[Job | None]) -> None:
    """Take jobs until the pipe is closed; then give a job under way some seconds to save its state."""
    try:
        while True:
            jobs.put(pipe.recv())
    except (EOFError, OSError):
        jobs.put(None)
        stopping.request()
        time.sleep(GRACE_S / 2)
    os.kill(os.getpid(), signal.SIGTERM)  # if the job has not stopped by then, it is interrupted
    time.sleep(GRACE_S / 2)
    os._exit(1)
