"""Measures training steps on a device: tokens per second, memory, and the share of the device's peak that is used."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from measure import llama
from roofline import Peaks
from training_step import training_step

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.training.cost import FlopCount

_WARM_UP = 2


def train(
    spec: str, shape: dict[str, Any], device: torch.device, batch: int, length: int, steps: int, peaks: Peaks
) -> dict[str, Any]:
    """Run some optimizer steps of a method (forward, backward, clipping and AdamW) in bf16 with fp32 weights.

    Returns:
        Median seconds of a step, tokens per second, FLOPs of a step and their share of the peak, the first and the last
        loss, and on a GPU the most memory that was allocated, in bytes.
    """
    on_gpu = device.type == "cuda"
    model = AdaptiveModel.build(llama(**shape, device=device), spec, seed=1)
    step = training_step(model, batch, length, bf16=True, return_logits=False)
    count = FlopCount(model, model.backbone)
    losses = [step()]
    flops = count.flops
    count.close()
    losses += [step() for _ in range(_WARM_UP - 1)]
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    taken_s = []
    for _ in range(steps):
        start_s = time.perf_counter()
        losses.append(step())
        if on_gpu:
            torch.cuda.synchronize(device)
        taken_s.append(time.perf_counter() - start_s)
    median_s = statistics.median(taken_s)
    return {
        "method": spec,
        "batch": batch,
        "length": length,
        "steps": steps,
        "step_s": median_s,
        "tokens_per_s": batch * length / median_s,
        "flops": flops,
        "peak_share": flops / median_s / peaks.flops_per_s,
        "peak_memory_bytes": torch.cuda.max_memory_allocated(device) if on_gpu else None,
        "first_loss": losses[0],
        "last_loss": losses[-1],
    }
