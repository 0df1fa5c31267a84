"""Counts what a method's own linear maps cost, whoever calls them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, cast

from torch import Tensor, nn

from adaptive_bench.store.evaluations import RESCALE

__all__ = ["RESCALE", "DecisionMeter", "Reading"]


class Reading(NamedTuple):
    """One linear map run once, or one scaling of states.

    Attributes:
        name: What the ledger counts it as: `method.` and the map's name inside the method, for example
            `method.gates.3`, or `rescale`.
        inputs: Vectors it was run for: tokens, or rows if a row decides as a whole.
        macs: Multiply-accumulates for all of them.
        weight_bytes: Of its weight matrix, which is read once.
    """

    name: str
    inputs: int
    macs: int
    weight_bytes: int


class DecisionMeter:
    """Reads every `nn.Linear` inside a method."""

    def __init__(self, method: nn.Module) -> None:
        self._readings: list[Reading] = []
        for name, module in method.named_modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(partial(self._read, name))

    def take(self) -> list[Reading]:
        """What was run since the last call of this."""
        taken, self._readings = self._readings, []
        return taken

    def take_last(self, count: int) -> list[Reading]:
        """The last so many that were run, in order; they are in no later `take`."""
        taken = self._readings[len(self._readings) - count :]
        del self._readings[len(self._readings) - count :]
        return taken

    def note_rescale(self, states: int, width: int) -> None:
        """So many states of so many numbers were multiplied by a number."""
        self._readings.append(Reading(RESCALE, states, states * width, 0))

    def _read(self, name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        weight = cast(nn.Linear, module).weight
        vectors = inputs[0].numel() // weight.shape[1]
        self._readings.append(
            Reading(f"method.{name}", vectors, vectors * weight.numel(), weight.numel() * weight.element_size())
        )
