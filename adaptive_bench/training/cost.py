"""Counts the costs of a training besides time: tokens, FLOPs, and added parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from adaptive_bench.backbone import Backbone


@dataclass(frozen=True)
class TrainingCost:
    """Costs of one training, without the cost of another training from whose result it starts.

    Attributes:
        tokens: Tokens read in all steps, without padding.
        flops: FLOPs of all forward and backward passes, including heads at every layer, padding, and branches of
            skipping tokens, which the masked executor computes and discards.
        parameters_added: Number of the method's own parameters.
    """

    tokens: int
    flops: float
    parameters_added: int


class FlopCount:
    """Counts the matrix products that training executes: two FLOPs per multiply-accumulate.

    Every linear map counts when it runs, and again when a gradient reaches it: once for the gradient of its input and
    once for that of its weight, if these are needed. Every attention module counts likewise for its scores and its
    weighted sum. Recomputation by gradient checkpointing counts again. Schedules, exits that come and go, and gradients
    that stop somewhere are therefore counted correctly without special cases.

    `torch.utils.flop_counter` counts the same, but slows every step, and misses fused attention on a CPU. Set `macs`
    back to discard the work of a step that is repeated.
    """

    def __init__(self, model: nn.Module, backbone: Backbone, macs: int = 0) -> None:
        self.macs = macs
        self._hooks = [
            module.register_forward_hook(self._linear) for module in model.modules() if isinstance(module, nn.Linear)
        ]
        for layer, pair in enumerate(backbone.costs.pair.tolist()):
            attention = backbone.attention(layer)
            # Counted before the module runs, because a recomputed module stops as soon as it has restored everything
            # that the backward pass needs.
            self._hooks.append(attention.register_forward_pre_hook(partial(self._products, int(pair))))
            self._hooks.append(attention.register_forward_hook(partial(self._products_backward, int(pair))))

    @property
    def flops(self) -> int:
        """FLOPs so far."""
        return 2 * self.macs

    def close(self) -> None:
        """Stop counting and remove all hooks from the model."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def add_backward(self, output: Tensor, macs: int) -> None:
        """Add MACs when a gradient reaches an output; unused outputs never get one."""
        if macs and output.requires_grad:
            output.register_hook(lambda _: self._add(macs))

    def _add(self, macs: int) -> None:
        self.macs += macs

    def _linear(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        weight = module.weight
        assert isinstance(weight, Tensor)
        macs = inputs[0].numel() * weight.shape[0]  # tokens * inputs * outputs
        self.macs += macs
        self.add_backward(output, macs * (int(inputs[0].requires_grad) + int(weight.requires_grad)))

    def _products(self, pair: int, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """An attention module's two products, of every query with every key of the call."""
        self.macs += _pairs(inputs[0]) * pair

    def _products_backward(self, pair: int, module: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
        # Each of the two products has two factors, and each of them gets a gradient.
        self.add_backward(output[0], 2 * _pairs(inputs[0]) * pair)


def _pairs(states: Tensor) -> int:
    # [B, S, H]. Padding and masked pairs count: the masked executor computes them too.
    rows, tokens, _ = states.shape
    return rows * tokens * tokens
