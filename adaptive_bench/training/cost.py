"""Counts the FLOPs of a training, while it runs or before, and the memory of a step, from shapes alone.

On torch's meta device every operation runs but computes nothing, so that a step of any model takes a second and no
memory (`dry_step`). FLOPs and peak memory are those of the real step on a CPU, including method, losses and gradient
checkpointing.
"""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from adaptive_bench.backbone import Backbone

if TYPE_CHECKING:
    from adaptive_bench.model import AdaptiveModel


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


# At this place in training, a schedule that grows until the middle and then stays (such as exits that join the loss one
# by one) has its mean value.
_PLACE_IN_TRAINING = 3 / 8


@dataclass(frozen=True)
class DryStep:
    """The cost of a forward and a backward pass."""

    flops: float  # two per multiply-accumulate
    peak_bytes: int  # in addition to the weights and their gradients; 0 if not watched


def without_values(model: AdaptiveModel) -> AdaptiveModel:
    """A copy of a model whose tensors have shapes but no values."""
    empty: dict[int, Any] = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        copied = tensor.detach().to("meta")
        is_parameter = isinstance(tensor, nn.Parameter)
        empty[id(tensor)] = nn.Parameter(copied, requires_grad=tensor.requires_grad) if is_parameter else copied
    # The memo of `deepcopy`: what is in it counts as copied, so no values are, and shared tensors stay shared.
    return deepcopy(model, empty)


def dry_step(model: AdaptiveModel, rows: int, length: int, labels: int, *, watched: bool = False) -> DryStep:
    """Run one step of a model without values (`without_values`) on `rows` sequences of `length` tokens; it fails if the
    method reads values.

    Args:
        labels: Predicted tokens per sequence, at its end.
        watched: Whether to measure peak memory, which takes twice as long.
    """
    ids = torch.ones(rows, length, dtype=torch.long)
    answered = (torch.arange(length) >= length - labels).expand_as(ids)
    count = FlopCount(model, model.backbone)
    was_training = model.training
    try:
        model.train()
        model.begin_step(max(1, round(1000 * _PLACE_IN_TRAINING)), 1000)
        if watched:  # in all passes but the first, gradients already exist
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
        # Only now, so that the gradients above count as the model's own.
        held = _Held(model)
        with held if watched else nullcontext(), _FusedAttention():
            loss = model(
                # Mask and labels keep their values, as in `micro_batches.accumulate`: the host reads them.
                input_ids=ids.to("meta"),
                attention_mask=torch.ones_like(ids),
                labels=ids.masked_fill(~answered, -100),
                continuation_mask=answered.to("meta"),
                documents=torch.zeros(rows, dtype=torch.long, device="meta"),
                return_logits=False,
            ).loss
            if loss.requires_grad:
                loss.backward()
    finally:
        count.close()
        model.zero_grad(set_to_none=True)
        model.train(was_training)
    return DryStep(float(count.flops), held.peak_bytes)


class _FusedAttention(TorchFunctionMode):
    """Replaces attention by the fused kernel, as real devices compute it: on meta tensors torch would otherwise build
    the table of scores.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is not functional.scaled_dot_product_attention or not args[0].is_meta:
            return func(*args, **given)
        query, key, value = args
        # [B, heads, S, head size]. The fused kernel wants as many heads of keys and values as of queries.
        groups = query.shape[1] // key.shape[1]
        key, value = (each.repeat_interleave(groups, dim=1) if groups > 1 else each for each in (key, value))
        fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        causal, mask = bool(given.get("is_causal")), given.get("attn_mask")
        return fused(query, key, value, 0.0, causal, attn_mask=mask, scale=given.get("scale"))[0]


class _Held(TorchDispatchMode):
    """Tracks the bytes of live storage created inside the block; views of the model's own tensors do not count."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.bytes = self.peak_bytes = 0
        gradients = (parameter.grad for parameter in model.parameters() if parameter.grad is not None)
        own = [*model.parameters(), *model.buffers(), *gradients]
        # Addresses of storages: a view has that of its tensor, and takes no memory of its own.
        self._known = {tensor.untyped_storage()._cdata for tensor in own}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor) and tensor.is_meta:
                storage = tensor.untyped_storage()
                key, size = storage._cdata, storage.nbytes()
                if key not in self._known:
                    self._known.add(key)
                    self.bytes += size
                    self.peak_bytes = max(self.peak_bytes, self.bytes)
                    weakref.finalize(storage, self._gone, key, size)
        return made

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)  # a later storage may get the same address
        self.bytes -= size
