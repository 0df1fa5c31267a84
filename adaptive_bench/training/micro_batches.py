"""Cuts the sequences of an optimizer step into micro-batches that fit into memory and hold little padding.

A step that is small stays whole and in its order. A larger one is sorted by length first: its gradient is a sum over
sequences, so that the cut changes nothing but rounding (but see `gradient.accumulate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from adaptive_bench.free_memory import usable_bytes
from adaptive_bench.training.dry_step import dry_step, without_values
from adaptive_bench.training.encoding import EncodedExample

if TYPE_CHECKING:
    from adaptive_bench.backbone import Backbone
    from adaptive_bench.model import AdaptiveModel

VALUE_BYTES = 4
OPTIMIZER_VALUES = 3  # of a trained parameter: its gradient and AdamW's two moments
_MOST_PADDING = 0.1
_ABOUT = 0.8
# Below this nobody runs out of memory, and a pass more costs more than padding; beyond twice that no pass is faster.
_WHOLE_BYTES, _MOST_BYTES, _WHOLE_SHARE_OF_GPU = 1 << 30, 2 << 30, 1 / 8


@dataclass(frozen=True)
class Footprint:
    """Bytes that a forward and a backward pass hold beside weights and gradients: of each padded token, of each token
    that is predicted, of each pair of tokens of a sequence, and however many there are.
    """

    token: float
    label: float
    pair: float
    always: float = 0.0

    def of(self, rows: int, length: int, labels: int) -> float:
        """Of a micro-batch."""
        return self.always + rows * length * (self.token + length * self.pair) + labels * self.label


def rough_footprint(backbone: Backbone, heads: int = 1) -> Footprint:
    """More than a step holds, from the model's shape.

    Args:
        heads: How many times logits of every predicted token may be there.
    """
    shape, layers = backbone.config, backbone.num_layers
    token = layers * (24 * shape.hidden_size + 8 * shape.intermediate_size)
    scores = 4 * shape.num_attention_heads if backbone.eager else 0
    values = token, 4 * heads * backbone.vocab_size, layers * scores
    return Footprint(*(VALUE_BYTES * each for each in values))


def measured_footprint(model: AdaptiveModel) -> Footprint:
    """What a step holds, from steps without values on one short sequence; the rough one of a method that needs some."""
    empty, few = without_values(model), min(64, model.backbone.context_length // 4)
    try:
        one, two, four = (dry_step(empty, 1, times * few, 1, watched=True).peak_bytes for times in (1, 2, 4))
        whole = dry_step(empty, 1, 4 * few, 4 * few, watched=True).peak_bytes
    except Exception:  # noqa: BLE001 - the method's own code, on tensors that it was not written for
        return rough_footprint(model.backbone, _heads(model))
    # always + n token + n^2 pair at n = few, 2 few, 4 few
    pair = max(0.0, (four - two - 2 * (two - one)) / (6 * few**2))
    token = max(0.0, (two - one) / few - 3 * few * pair)
    label = max(0.0, (whole - four) / (4 * few - 1))
    return Footprint(token, label, pair, max(0.0, one - few * (token + few * pair) - label))


def _heads(model: AdaptiveModel) -> int:
    return model.backbone.num_layers if model.method.wants_layer_states else 1


def trained_bytes(model: AdaptiveModel) -> int:
    """What gradients and moments of the trained parameters take."""
    return OPTIMIZER_VALUES * VALUE_BYTES * sum(each.numel() for each in model.parameters() if each.requires_grad)


class MicroBatches:
    """How steps of one training are cut.

    Args:
        model: On the device where it is trained; its optimizer has no moments yet.
        usable: Bytes that activations may take; by default what is free, without what gradients and moments will take.
    """

    def __init__(self, model: AdaptiveModel, usable: int | None = None) -> None:
        self._model, self._device = model, next(model.parameters()).device
        found = usable_bytes(self._device) if usable is None else None
        self.usable = usable if found is None else max(0, found - trained_bytes(model))
        self._rough = rough_footprint(model.backbone, _heads(model))
        self._whole, most = float(_WHOLE_BYTES), float(_MOST_BYTES)
        if self.usable is not None and self._device.type == "cuda":
            self._whole = _WHOLE_SHARE_OF_GPU * torch.cuda.get_device_properties(self._device).total_memory
            most = 2 * self._whole
        if self.usable is not None:
            self.usable = int(min(self.usable, most))

    @cached_property
    def _footprint(self) -> Footprint:
        return measured_footprint(self._model)

    def keep_to(self, usable: int | None) -> None:
        """Cut as before with so many bytes, if there still is about that much: the same pieces give the same bytes."""
        if usable is not None and self.usable is not None and self.usable >= _ABOUT * usable:
            self.usable = usable

    def shrink(self) -> None:
        """What was taken to fit did not."""
        self.usable = None if self.usable is None else self.usable // 2

    def cut(self, batch: Sequence[EncodedExample]) -> list[Sequence[EncodedExample]]:
        """The sequences in micro-batches: as given where all of them take little, else the longest first."""
        if self.usable is None:
            return [batch]
        most = min(self._whole, float(self.usable))
        if _held(batch, self._rough) <= most or _held(batch, self._footprint) <= most:
            return [batch]
        parts: list[list[EncodedExample]] = []
        for example in sorted(batch, key=lambda one: len(one.token_ids), reverse=True):
            if parts and self._joins(parts[-1], example):
                parts[-1].append(example)
            else:
                parts.append([example])
        return list(parts)

    def _joins(self, part: Sequence[EncodedExample], example: EncodedExample) -> bool:
        assert self.usable is not None
        joined = [*part, example]
        if _held(joined, self._footprint) > self.usable:
            return False
        slots = len(joined) * len(part[0].token_ids)
        padding = 1 - sum(len(one.token_ids) for one in joined) / slots
        return padding <= _MOST_PADDING or _held(part, self._footprint) < self._whole


def _held(batch: Sequence[EncodedExample], footprint: Footprint) -> float:
    longest = max(len(one.token_ids) for one in batch)
    return footprint.of(len(batch), longest, sum(one.loss_tokens for one in batch))
