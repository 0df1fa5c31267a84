"""What a training takes beside its time: tokens, FLOPs, parameters added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from adaptive_bench.training.encoding import EncodedExample


@dataclass(frozen=True)
class TrainingCost:
    """Costs of one training; a training that starts from another one's result comes on top of that.

    Attributes:
        tokens: Read, in all steps; padding not counted.
        flops: Of all forward and backward passes, whatever the method ran in them (masked execution, heads at every
            layer, padding): those of the first step, scaled by tokens.
        parameters_added: Of the method alone.
    """

    tokens: int
    flops: float
    parameters_added: int


def training_cost(
    method: nn.Module,
    steps: Sequence[Sequence[EncodedExample]],
    first_step: Callable[[Sequence[EncodedExample]], object],
) -> TrainingCost:
    """Count a training.

    Args:
        steps: The examples of each optimizer step.
        first_step: Runs forward and backward passes of one step; its gradients are left to the caller.
    """
    tokens = [sum(len(example.token_ids) for example in step) for step in steps]
    flops = 0.0
    if steps:
        with FlopCounterMode(display=False) as counter:
            first_step(steps[0])
        flops = counter.get_total_flops() * sum(tokens) / tokens[0]
    return TrainingCost(sum(tokens), flops, sum(parameter.numel() for parameter in method.parameters()))
