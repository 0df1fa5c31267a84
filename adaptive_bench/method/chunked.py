"""Cross entropy of many tokens whose logits live for some of them at a time.

The gradient of hidden states and of the head is computed beside the loss, so that no logits wait for the backward pass
and none are computed twice: what executes is the same, what is held is one table [chunk, V].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from adaptive_bench.backbone import Backbone

LARGE = 1 << 26  # logits that are not worth a second thought: 256 MB
_AT_ONCE = 1 << 24


def chunked_cross_entropies(
    backbone: Backbone, states: Sequence[Tensor], weights: Sequence[float], targets: Tensor
) -> Tensor:
    """Weighted sum of the mean cross entropies of targets [N] predicted from states [N, H] each."""
    read = [*backbone.decoder.norm.parameters(), *backbone.model.lm_head.parameters()]
    loss: Tensor = _Chunked.apply(backbone, tuple(weights), targets, len(states), *states, *read)
    return loss


class _Chunked(torch.autograd.Function):
    """Loss and, where one is wanted, gradient at once."""

    @staticmethod
    def forward(
        context: Any, backbone: Backbone, weights: tuple[float, ...], targets: Tensor, count: int, *tensors: Tensor
    ) -> Tensor:
        states, read = tensors[:count], tensors[count:]
        wanted = context.needs_input_grad[4:]
        learned = [tensor for tensor, learns in zip(read, wanted[count:], strict=True) if learns]
        gradients = [torch.empty_like(one) if learns else None for one, learns in zip(states, wanted, strict=False)]
        sums = [torch.zeros_like(one) for one in learned]
        loss = torch.zeros((), device=targets.device)
        some = max(1, _AT_ONCE // backbone.vocab_size)
        for state, weight, gradient in zip(states, weights, gradients, strict=True):
            for start in range(0, len(targets), some):
                part = slice(start, start + some)
                with torch.enable_grad():
                    hidden = state[part].detach().requires_grad_(gradient is not None)
                    logits = backbone.head(backbone.final_norm(hidden)).float()
                    value = functional.cross_entropy(logits, targets[part], reduction="sum") * (weight / len(targets))
                loss += value.detach()
                asked = [*([] if gradient is None else [hidden]), *learned]
                if asked:
                    found = torch.autograd.grad(value, asked)
                    if gradient is not None:
                        gradient[part], found = found[0], found[1:]
                    for total, one in zip(sums, found, strict=True):
                        total += one
                del logits, value
        of_read = iter(sums)
        context.gradients = [*gradients, *(next(of_read) if learns else None for learns in wanted[count:])]
        return loss

    @staticmethod
    @once_differentiable
    def backward(context: Any, scale: Tensor) -> tuple[Any, ...]:
        gradients = [None if one is None else one.mul_(scale) for one in context.gradients]
        context.gradients = []
        return None, None, None, None, *gradients
