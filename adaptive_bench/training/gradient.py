"""The gradient of one optimizer step, in as many micro-batches as memory asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from accelerate import Accelerator
from accelerate.utils.memory import clear_device_cache

from adaptive_bench.training.distributed import DistributedTraining
from adaptive_bench.training.encoding import EncodedExample, training_batch
from adaptive_bench.training.memory import ran_out_of_memory


@dataclass(frozen=True)
class StepLoss:
    """What one optimizer step's forward passes gave, each value a mean over the step's predicted tokens."""

    loss: float
    terms: dict[str, float]
    tokens: int


def accumulate(
    training: DistributedTraining,
    parts: Sequence[Sequence[EncodedExample]],
    pad_id: int,
    accelerator: Accelerator,
) -> StepLoss | None:
    """Add the gradient of a batch to the parameters, or give `None` (and no gradient) when memory runs out.

    A micro-batch enters with its share of the batch's predicted tokens, a method's own losses with that of the tokens
    they are means over (`Method.losses_over`): the number of micro-batches changes nothing but rounding. Where a loss
    is no such mean (the square of an executed share), or a method ranks the tokens of a batch, which are then those of
    a micro-batch, it moves a little, by up to 3e-3 with the methods of this repository.
    Losses come to the host once, when all is done: nobody waits for the device between micro-batches. Whether they are
    finite is for the caller to see.
    """
    model = training.model
    device = next(model.parameters()).device
    total, real = _tokens([example for part in parts for example in part])
    over_real = model.method.losses_over == "real"
    names, sums = [""], torch.zeros(0)
    try:
        for number, micro_batch in enumerate(parts, 1):
            predicted, read = _tokens(micro_batch)
            share = predicted / total
            own = read / real if over_real else share
            model.own_losses_weigh = own / share
            last = number == len(parts)
            with training.syncing(last):
                with accelerator.autocast():
                    tensors = training_batch(training.part(micro_batch), pad_id)
                    # what the host reads, mask and labels, is read before it is on the device
                    moved = {name: tensors[name].to(device) for name in tensors.keys() - {"attention_mask", "labels"}}
                    loss = training.loss(tensors | moved)
                names = ["", *model.raw_loss_terms]
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
        model.own_losses_weigh = 1.0  # whoever goes on with the model asks for whole batches
    # Only here, outside the handler, the failed pass no longer holds its activations.
    model.zero_grad(set_to_none=True)
    clear_device_cache(garbage_collection=True)
    return None


def _tokens(examples: Sequence[EncodedExample]) -> tuple[int, int]:
    """Tokens that are predicted, and tokens that are read: all but the last one of each text."""
    return sum(one.loss_tokens for one in examples), sum(len(one.token_ids) - 1 for one in examples)


def split(batch: Sequence[EncodedExample], parts: int) -> list[Sequence[EncodedExample]]:
    """Cut a batch into `parts` runs whose sizes differ by one at most."""
    edges = [len(batch) * part // parts for part in range(parts + 1)]
    return [batch[start:end] for start, end in pairwise(edges)]
