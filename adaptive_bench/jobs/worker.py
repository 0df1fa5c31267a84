"""The side of a worker process: how it gets ready, works, and ends with the process that started it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from adaptive_bench import free_memory, registry, stopping
from adaptive_bench.jobs.failure import Failure
from adaptive_bench.jobs.job import Job, run_job
from adaptive_bench.jobs.progress_queue import RemoteReporter
from adaptive_bench.jobs.stdout_forwarder import StdoutForwarder

GRACE_S = 10.0  # that a stopped worker has to write down where it stands
_reporter: RemoteReporter | None = None
_busy = False


def start_worker(sender: Connection, alive: Connection, threads: int, plugins: list[Path], workers: int = 1) -> None:
    """Get this process ready to work for the one that started it.

    Args:
        sender: Pipe for what it has to say.
        alive: Pipe whose other end the parent holds: when that is closed, or the parent gone, this process ends.
        threads: Its share of the cores.
        plugins: Files to load.
        workers: Processes like it that share the memory.
    """
    global _reporter
    # Ctrl-C reaches the whole group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_stop_with_parent, args=(alive,), daemon=True).start()
    torch.set_num_threads(threads)
    free_memory.share_among(workers)
    _reporter = RemoteReporter(sender)
    sys.stdout = sys.stderr = StdoutForwarder(_reporter)
    registry.load_plugins(plugins)


def _stop_with_parent(alive: Connection) -> None:
    """The parent holds the other end: when it closes it, or is gone, this process keeps where it stands and ends."""
    alive.poll(None)
    stopping.request()
    _wait_until_idle()
    os.kill(os.getpid(), signal.SIGTERM)  # its code takes its time: it ends without
    _wait_until_idle()
    os._exit(1)


def _wait_until_idle() -> None:
    end_s = time.monotonic() + GRACE_S / 2
    while _busy and time.monotonic() < end_s:
        time.sleep(0.05)


def _leave(*_: object) -> None:
    """Let the work under way write down where it stands; without any, be gone at once."""
    if not _busy:
        os._exit(1)
    sys.exit(1)


def run_in_worker(job: Job) -> list[Failure]:
    """`run_job` in this process, which `start_worker` has made ready. Asked to end meanwhile, it has some seconds to
    write down where it stands.
    """
    global _busy
    assert _reporter is not None
    _busy = True
    try:
        return run_job(job, _reporter)
    finally:
        _busy = False
