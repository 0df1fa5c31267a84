"""What the jobs of a run may use: processes and time."""

from __future__ import annotations

import math

import torch

from adaptive_bench import processes
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError
from adaptive_bench.jobs.job import needs_own_process
from adaptive_bench.jobs.watchdog import Limits
from adaptive_bench.runs.planning.backbones import find_backbone, find_device
from adaptive_bench.spec import MethodSpec

# A larger backbone keeps all cores busy by itself.
_SMALL_BACKBONE_BYTES = 100_000_000
_MOST_PROCESSES = 8
_WORTH_S = 10.0  # of work that is done sooner in this process than others load the libraries: about 5 s each


def limits_of(config: RunConfig) -> Limits:
    """What each job of a run may take.

    Raises:
        UsageError: A time limit, and several processes that share every job.
    """
    if config.cell_timeout is not None and not processes.world().is_single:
        raise UsageError(
            "--cell-timeout ends the process of a job, but torchrun's processes do all of them together. Leave it out "
            "and let the scheduler's own time limit end the command."
        )
    return Limits(config.cell_timeout and 60 * config.cell_timeout, 60 * config.stall_warning or None)


def useful_processes(config: RunConfig, seconds: float = math.inf) -> int:
    """One core for each small backbone; a large one, or a GPU, is not shared.

    Args:
        seconds: What the work takes in one process.
    """
    if seconds < _WORTH_S and not any(needs_own_process(MethodSpec.parse(text).name) for text in config.methods):
        return 1
    size_bytes = find_backbone(config.model).weight_bytes
    if find_device(config.device).type != "cpu" or size_bytes is None or size_bytes > _SMALL_BACKBONE_BYTES:
        return 1
    return min(torch.get_num_threads(), _MOST_PROCESSES)
