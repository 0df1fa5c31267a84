"""Work in several processes, each with its share of the cores. They end with the parent, even if it is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import torch

from adaptive_bench import registry, stopping
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.progress import Meter, Reporter
from adaptive_bench.runs.chains import Chain, Failure, Work, attempt
from adaptive_bench.runs.relay import QueueReporter, relayed

# How long a stopped worker has to write down where it stands.
_GRACE_S = 10.0
_LOOK_S = 1.0  # between two looks whether the parent was asked to stop
_worker_reporter: QueueReporter | None = None
_busy = False


def in_parallel(chains: list[Chain], reporter: Reporter, overall: Meter, jobs: int) -> list[Failure]:
    """Do chains in `jobs` processes. What builds on a training starts when the training is done."""
    context = multiprocessing.get_context("spawn")
    queue: Queue[Any] = context.Queue()
    alive, keep_alive = context.Pipe(duplex=False)
    threads = max(1, torch.get_num_threads() // jobs)
    with relayed(queue, reporter, overall):
        pool = ProcessPoolExecutor(jobs, context, _start_worker, (queue, alive, threads, registry.plugin_files()))
        try:
            return _schedule(pool, chains, reporter)
        except BaseException:
            keep_alive.close()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _schedule(pool: ProcessPoolExecutor, chains: list[Chain], reporter: Reporter) -> list[Failure]:
    failures = []
    pending: dict[Future[Failure | None], tuple[Chain, Work]] = {}
    waiting = list(chains)

    def submit(chain: Chain, *works: Work) -> None:
        for work in works:
            pending[pool.submit(_do, work)] = (chain, work)

    def submit_ready() -> None:
        ready = [chain for chain in waiting if chain.waits_for is None]
        if not ready and not pending:  # what they wait for has failed; they find out and say so
            ready = list(waiting)
        for chain in ready:
            waiting.remove(chain)
            submit(chain, *([chain.training] if chain.training else chain.measurings))

    submit_ready()
    while pending:
        stopping.check()
        for future in wait(pending, timeout=_LOOK_S, return_when=FIRST_COMPLETED).done:
            chain, work = pending.pop(future)
            failure = _outcome(future, work)
            if failure is not None:
                failures.append(failure)
                reporter.line(f"Failed: {failure}")
            elif work is chain.training:
                submit(chain, *chain.measurings)
        submit_ready()
    return failures


def _outcome(future: Future[Failure | None], work: Work) -> Failure | None:
    try:
        return future.result()
    except (BrokenProcessPool, SystemExit, stopping.Stopped):
        reason = "its process was ended by the system, most likely because memory ran out. The same command goes on"
        return Failure(str(work), f"{reason} from where it stopped; finished work is kept.", EnvironmentProblem.kind)


def _start_worker(queue: Queue[Any], alive: Connection, threads: int, plugins: list[Path]) -> None:
    global _worker_reporter
    # Ctrl-C reaches the whole group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_stop_with_parent, args=(alive,), daemon=True).start()
    torch.set_num_threads(threads)
    for path in plugins:
        registry.load_plugin(path)
    _worker_reporter = QueueReporter(queue)


def _stop_with_parent(alive: Connection) -> None:
    """The parent holds the other end: when it closes it, or is gone, this process keeps where it stands and ends."""
    alive.poll(None)
    stopping.request()
    _wait_until_idle()
    os.kill(os.getpid(), signal.SIGTERM)  # whatever is at it takes its time: it ends without
    _wait_until_idle()
    os._exit(1)


def _wait_until_idle() -> None:
    end_s = time.monotonic() + _GRACE_S / 2
    while _busy and time.monotonic() < end_s:
        time.sleep(0.05)


def _leave(*_: object) -> None:
    """Let the work under way write down where it stands; without any, be gone at once."""
    if not _busy:
        os._exit(1)
    sys.exit(1)


def _do(work: Work) -> Failure | None:
    global _busy
    assert _worker_reporter is not None
    _busy = True
    try:
        return attempt(work, _worker_reporter, _worker_reporter.overall)
    finally:
        _busy = False
