"""What a training takes beside its time: tokens, FLOPs, parameters added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from adaptive_bench.backbone import Backbone


@dataclass(frozen=True)
class TrainingCost:
    """Costs of one training; a training that starts from another one's result comes on top of that.

    Attributes:
        tokens: Read, in all steps; padding not counted.
        flops: Executed in all forward and backward passes of all steps, whatever asked for them: heads at every layer,
            padding, and the branches of tokens that skip, which the masked executor computes and discards.
        parameters_added: Of the method alone.
    """

    tokens: int
    flops: float
    parameters_added: int


class FlopCount:
    """Counts the matrix products that training executes, step for step: two FLOPs a multiply-accumulate.

    Every linear map counts when it runs, and again when a gradient comes back to it: once for the gradient of its
    input, once for that of its weight, where these are wanted. So does every attention module for its scores and its
    weighted sum. What gradient checkpointing runs again counts again. Schedules, exits that come and go, and gradients
    that stop somewhere are therefore in the count without being told to it.

    `torch.utils.flop_counter` counts the same, but slows every step, and sees nothing of fused attention on a CPU.

    Args:
        model: Whose linear maps count, those of adapters and of the method included.
        backbone: Knows the attention modules and what a (query, key) pair costs there.

    Attributes:
        macs: Multiply-accumulates so far. Set it back to forget what a repeated step executed before.
    """

    def __init__(self, model: nn.Module, backbone: Backbone, macs: int = 0) -> None:
        self.macs = macs
        self._hooks = [
            module.register_forward_hook(self._linear) for module in model.modules() if isinstance(module, nn.Linear)
        ]
        for layer, pair in enumerate(backbone.costs.pair.tolist()):
            products = _Products(self, int(pair))
            attention = backbone.attention(layer)
            self._hooks.append(attention.register_forward_pre_hook(products.forward, with_kwargs=True))
            self._hooks.append(attention.register_forward_hook(products.backward, with_kwargs=True))

    @property
    def flops(self) -> int:
        """FLOPs so far."""
        return 2 * self.macs

    def close(self) -> None:
        """Stop counting, and leave the model as it was found."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def add_backward(self, output: Tensor, macs: int) -> None:
        """Add MACs once a gradient comes back to an output; none ever does to what nobody uses."""
        if macs and output.requires_grad:
            output.register_hook(lambda _: self._add(macs))

    def _add(self, macs: int) -> None:
        self.macs += macs

    def _linear(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        weight = module.weight
        assert isinstance(weight, Tensor)
        macs = inputs[0].numel() * weight.shape[0]
        self.macs += macs
        self.add_backward(output, macs * (int(inputs[0].requires_grad) + int(weight.requires_grad)))


class _Products:
    """The two products of one attention module: every query with every key of the call, as the executor runs them.

    The first half counts before the module runs: a recomputed module is left as soon as nothing in it is missing.
    """

    def __init__(self, count: FlopCount, pair: int) -> None:
        self.count, self.pair = count, pair

    def forward(self, module: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Any]) -> None:
        self.count.macs += self._macs(inputs[0])

    def backward(self, module: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Any], output: Any) -> None:
        self.count.add_backward(output[0], 2 * self._macs(inputs[0]))

    def _macs(self, states: Tensor) -> int:
        rows, tokens, _ = states.shape
        return rows * tokens * tokens * self.pair


def parameters_added(method: nn.Module) -> int:
    """Parameters of a method itself."""
    return sum(parameter.numel() for parameter in method.parameters())
