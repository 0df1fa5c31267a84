"""Whether the trainings of a run fit into memory with one sequence at a time."""

from __future__ import annotations

from collections.abc import Iterable

from adaptive_bench.backbone import Backbone
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.free_memory import free_on
from adaptive_bench.runs.checks.model import size
from adaptive_bench.runs.cost.budget import Workload
from adaptive_bench.runs.planning.backbones import find_device
from adaptive_bench.spec import MethodSpec
from adaptive_bench.training.micro_batches import VALUE_BYTES, rough_footprint, trained_bytes


def check_memory(work: Workload, trained: Iterable[MethodSpec], jobs: int) -> None:
    """Hold what one process needs for one sequence against its part of what is free.

    Raises:
        EnvironmentProblem: It does not fit.
    """
    recipe, empty = work.config.train, work.prices.empty
    free = free_on(find_device(work.config.device))
    weights = VALUE_BYTES * sum(each.numel() for each in empty.parameters())
    backbone = Backbone(empty)
    at_most = rough_footprint(backbone, backbone.num_layers).of(1, work.longest, work.longest)
    if free is None or 5 * weights + at_most < free / jobs:  # gradients and two moments of a model with more parameters
        return
    for spec in trained:
        step = work.prices.step(
            spec, recipe, work.longest, round(work.longest * work.labels / work.tokens), watched=True
        )
        if step is None:
            continue
        trainee = work.prices.trainee(spec, recipe)
        needed = weights + trained_bytes(trainee) + step.peak_bytes
        if needed > free / jobs:
            raise EnvironmentProblem(
                f"Training {spec} needs about {size(needed, 'G')}B with one sequence of {work.longest} tokens at a "
                f"time, but {size(free / jobs, 'G')}B are free{f' for each of {jobs} processes' if jobs > 1 else ''}. "
                f"{_helps(work, jobs)}"
            )


def _helps(work: Workload, jobs: int) -> str:
    recipe = work.config.train
    helps = {
        "work with --jobs 1": jobs > 1,
        "train adapters in place of the weights (train.lora)": recipe.lora is None,
        "set train.gradient_checkpointing to true": not recipe.gradient_checkpointing,
        f"lower train.max_length (now {recipe.max_length})": True,
        "choose a smaller --model": True,
    }
    first, second, third, *_ = (text for text, there in helps.items() if there)
    return f"{first[0].upper()}{first[1:]}, {second}, or {third}."
