"""Computes the gradient of an optimizer step, in as many micro-batches as memory requires.

A small optimizer step stays whole and in order. A larger step is sorted by length first. Since the gradient is a sum
over sequences, cutting changes only rounding (for exceptions see `accumulate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from accelerate.utils.memory import clear_device_cache

from adaptive_bench.hardware import ran_out_of_memory, usable_bytes
from adaptive_bench.training.cost import dry_step, without_values
from adaptive_bench.training.distributed import DistributedTraining
from adaptive_bench.training.encoding import EncodedExample, training_batch

if TYPE_CHECKING:
    from adaptive_bench.backbone import Backbone
    from adaptive_bench.model import AdaptiveModel

VALUE_BYTES = 4
OPTIMIZER_VALUES = 3  # values per trained parameter: its gradient and AdamW's two moments
_MOST_PADDING = 0.1  # share of the slots of a micro-batch
_STILL_FREE = 0.8  # share of an earlier limit that must be free again for it to be kept to
# Below this size no device runs out of memory, and a further pass costs more than padding; beyond twice this size,
# larger passes are not faster.
_WHOLE_BYTES, _MOST_BYTES, _WHOLE_SHARE_OF_GPU = 1 << 30, 2 << 30, 1 / 8


@dataclass(frozen=True)
class Footprint:
    """Bytes that a forward and a backward pass hold besides weights and gradients."""

    token: float  # per token, including padding
    label: float  # per predicted token
    pair: float  # per pair of tokens of a sequence
    always: float = 0.0

    def of(self, rows: int, length: int, labels: int) -> float:
        """Bytes of a micro-batch; `labels` is the number of predicted tokens in all rows."""
        return self.always + rows * length * (self.token + length * self.pair) + labels * self.label


def rough_footprint(backbone: Backbone, heads: int = 1) -> Footprint:
    """An upper bound on what a step holds, from the model's shape; `heads` sets of logits of all predicted tokens may
    exist at once.
    """
    shape, layers = backbone.config, backbone.num_layers
    token = layers * (24 * shape.hidden_size + 8 * shape.intermediate_size)
    scores = 4 * shape.num_attention_heads if backbone.eager else 0
    values = token, 4 * heads * backbone.vocab_size, layers * scores
    return Footprint(*(VALUE_BYTES * each for each in values))


def measured_footprint(model: AdaptiveModel) -> Footprint:
    """The footprint from steps without values on one short sequence; the rough one if the method reads values."""
    empty, few = without_values(model), min(64, model.backbone.context_length // 4)
    try:
        # With one label each, so that logits hardly count; then with all tokens as labels.
        one, two, four = (dry_step(empty, 1, times * few, 1, watched=True).peak_bytes for times in (1, 2, 4))
        whole = dry_step(empty, 1, 4 * few, 4 * few, watched=True).peak_bytes
    except Exception:  # noqa: BLE001 - the method's own code may fail in any way on tensors without values
        return rough_footprint(model.backbone, _heads(model))
    # always + n token + n^2 pair at n = few, 2 few, 4 few
    pair = max(0.0, (four - two - 2 * (two - one)) / (6 * few**2))
    token = max(0.0, (two - one) / few - 3 * few * pair)
    label = max(0.0, (whole - four) / (4 * few - 1))
    return Footprint(token, label, pair, max(0.0, one - few * (token + few * pair) - label))


def _heads(model: AdaptiveModel) -> int:
    # A method that reads the states of all layers may run the head on each.
    return model.backbone.num_layers if model.method.wants_layer_states else 1


def trained_bytes(model: AdaptiveModel) -> int:
    """Bytes of the gradients and moments of the trained parameters."""
    return OPTIMIZER_VALUES * VALUE_BYTES * sum(each.numel() for each in model.parameters() if each.requires_grad)


class MicroBatches:
    """Cuts the steps of one training of a model that is on its device and whose optimizer has no moments yet.

    `usable` are the bytes that activations may take: by default the free memory minus what gradients and moments take.
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
        """Use an earlier limit if about as much memory is free now, since only the same pieces give the same bytes."""
        if usable is not None and self.usable is not None and self.usable >= _STILL_FREE * usable:
            self.usable = usable

    def shrink(self) -> None:
        """Halve the limit after memory ran out."""
        self.usable = None if self.usable is None else self.usable // 2

    def cut(self, batch: Sequence[EncodedExample]) -> list[Sequence[EncodedExample]]:
        """The sequences in micro-batches: one batch in the given order if it is small, otherwise the longest first."""
        if self.usable is None:
            return [batch]
        most = min(self._whole, float(self.usable))
        # The rough bound first: it costs nothing, and for small models it is enough.
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
        # A part that is small still grows: another pass would cost more than its padding.
        return padding <= _MOST_PADDING or _held(part, self._footprint) < self._whole


def _held(batch: Sequence[EncodedExample], footprint: Footprint) -> float:
    longest = max(len(one.token_ids) for one in batch)
    return footprint.of(len(batch), longest, sum(one.loss_tokens for one in batch))


@dataclass(frozen=True)
class StepLoss:
    """The losses of one optimizer step."""

    loss: float  # like `terms["ce"]` a mean over predicted tokens
    terms: dict[str, float]  # the method's own are means over its `losses_over`
    tokens: int  # that are predicted


def accumulate(
    training: DistributedTraining,
    parts: Sequence[Sequence[EncodedExample]],
    pad_id: int,
    precision: str,
) -> StepLoss | None:
    """Add the gradient of a batch to the parameters, or return `None` (without a gradient) when memory runs out.

    A micro-batch is weighted by its share of the batch's predicted tokens, and a method's own losses by the share of
    the tokens over which they average (`Method.losses_over`). So the number of micro-batches changes only rounding.
    There are two exceptions, in which it changes losses a little, by up to 3e-3 with the methods of this repository: a
    loss that is no such mean (the square of an executed share), and a method that ranks the tokens of a batch, which
    then ranks those of a micro-batch.

    Losses are read from the device once, at the end, so that nothing waits between micro-batches. The caller must check
    that they are finite.
    """
    model = training.model
    device = next(model.parameters()).device
    total, real = _tokens([example for part in parts for example in part])
    over_real = model.method.losses_over == "real"
    names, sums = [""], torch.zeros(0)  # the empty name stands for the whole loss
    try:
        for number, micro_batch in enumerate(parts, 1):
            predicted, read = _tokens(micro_batch)
            share = predicted / total
            own = read / real if over_real else share
            # The whole loss is multiplied by `share` below; this makes the weight of the method's own part `own`.
            model.own_losses_weigh = own / share
            last = number == len(parts)
            with training.syncing(last):
                with torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext():
                    tensors = training_batch(training.part(micro_batch), pad_id)
                    # mask and labels stay on the host, which reads them without waiting for the device
                    moved = {name: tensors[name].to(device) for name in tensors.keys() - {"attention_mask", "labels"}}
                    loss = training.loss(tensors | moved)
                names = ["", *model.raw_loss_terms]
                # In fp64: the sum over micro-batches is logged, and should not depend on how many there are.
                shares = torch.tensor([share if name in ("", "ce") else own for name in names], dtype=torch.float64)
                values = torch.stack([loss.detach(), *model.raw_loss_terms.values()]).double() * shares.to(loss.device)
                sums = sums + values if len(sums) else values
                training.backward(loss * share, last=last)
        found = dict(zip(names, sums.tolist(), strict=True))
    except (RuntimeError, MemoryError) as error:
        if not ran_out_of_memory(error):
            raise
    else:
        return StepLoss(found.pop(""), found, total)
    finally:
        model.own_losses_weigh = 1.0  # later users of the model call it with whole batches
    # Only here, outside the handler, are the activations of the failed pass released.
    model.zero_grad(set_to_none=True)
    clear_device_cache(garbage_collection=True)
    return None


def _tokens(examples: Sequence[EncodedExample]) -> tuple[int, int]:
    """The number of predicted tokens, and of tokens that are read (all but the last token of each text)."""
    return sum(one.loss_tokens for one in examples), sum(len(one.token_ids) - 1 for one in examples)


def split(batch: Sequence[EncodedExample], parts: int) -> list[Sequence[EncodedExample]]:
    """Cut a batch into `parts` runs whose sizes differ by at most one."""
    edges = [len(batch) * part // parts for part in range(parts + 1)]
    return [batch[start:end] for start, end in pairwise(edges)]
