"""Taking part in the work of the main process of several."""

from __future__ import annotations

from adaptive_bench import processes, stopping
from adaptive_bench.runs.work.evaluation import EvaluationWorker
from adaptive_bench.runs.work.training import train_as_worker


def work_as_worker() -> None:
    """Take part in what the main process broadcasts, until there is no more."""
    with stopping.listening():  # the main process decides when to stop
        processes.world().worker_loop({"train": train_as_worker, "evaluate": EvaluationWorker()})
