"""What a training takes beside its time: tokens, FLOPs, parameters added."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn
from torch.utils.flop_counter import FlopCounterMode


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


@contextmanager
def counted_flops(count: bool) -> Iterator[Callable[[], int]]:
    """Count what runs inside, if wanted; gives a function that says how many FLOPs it was."""
    if not count:
        yield lambda: 0
        return
    with FlopCounterMode(display=False) as counter:
        yield counter.get_total_flops


def training_cost(method: nn.Module, tokens: Sequence[int], first_step_flops: int) -> TrainingCost:
    """Cost of a training that reads so many tokens in each step."""
    flops = first_step_flops * sum(tokens) / tokens[0] if tokens else 0.0
    return TrainingCost(sum(tokens), flops, sum(parameter.numel() for parameter in method.parameters()))
