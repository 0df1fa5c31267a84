"""Further processes for a study's trials, each with its share of the cores. They end with the one that started them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from adaptive_bench import free_memory, registry, spawn, stopping
from adaptive_bench.errors import message_of
from adaptive_bench.jobs.progress_queue import ProgressQueue
from adaptive_bench.jobs.worker import at_work, start_worker
from adaptive_bench.progress import Reporter

Work = Callable[..., object]  # takes a reporter


@contextmanager
def helped(count: int, reporter: Reporter, work: Work) -> Iterator[None]:
    """Have `count` processes do `work(reporter=...)` beside the block; at its end all of them have ended.

    One that fails says why and is missed by nobody: the others go on with what it has left.

    Args:
        work: Can be pickled, as can its arguments.
    """
    context = spawn.context(runs_main=registry.needs_main())
    alive, keep_alive = context.Pipe(duplex=False)
    threads = torch.get_num_threads()
    share = max(1, threads // (count + 1))
    with ProgressQueue(reporter) as queue:
        processes = []
        for _ in range(count):
            sender = queue.sender(context)
            process = context.Process(
                target=_help, args=(sender, alive, share, registry.plugin_files(), count + 1, work)
            )
            process.start()
            sender.close()
            processes.append(process)
        torch.set_num_threads(share)
        free_memory.share_among(count + 1)
        try:
            yield
            for process in processes:
                process.join()
        finally:
            torch.set_num_threads(threads)
            free_memory.share_among(1)
            keep_alive.close()
            for process in processes:
                process.join()


def _help(sender: Connection, alive: Connection, threads: int, plugins: list[Path], workers: int, work: Work) -> None:
    reporter = start_worker(sender, alive, threads, plugins, workers)
    try:
        with at_work():
            work(reporter=reporter)
    except stopping.Stopped:
        pass
    except Exception as error:  # noqa: BLE001 - it must not end the study
        reporter.line(f"A process that helped with the study has ended: {message_of(error)}")
