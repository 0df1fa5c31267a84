"""Computes the gradient of one optimizer step, in as many micro-batches as memory requires."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise

import torch
from accelerate.utils.memory import clear_device_cache

from adaptive_bench.training.distributed import DistributedTraining
from adaptive_bench.training.encoding import EncodedExample, training_batch
from adaptive_bench.training.micro_batches import ran_out_of_memory


@dataclass(frozen=True)
class StepLoss:
    """The losses of one optimizer step, and its number of predicted tokens.

    `loss` and `terms["ce"]` are means over predicted tokens; the method's own terms are means over `losses_over`.
    """

    loss: float
    terms: dict[str, float]
    tokens: int


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
