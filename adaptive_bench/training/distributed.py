"""Trains one model in several processes: DistributedDataParallel, or fully sharded with torch's `fully_shard`.

Every process has its rows of each micro-batch. Values that are averaged over a batch are first gathered
from all processes (`gathered`). So every process has the loss of the whole batch and, after gradients are averaged,
the gradient of the whole batch: the same as in one process, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from adaptive_bench.errors import UsageError
from adaptive_bench.processes import Processes

if TYPE_CHECKING:
    from adaptive_bench.model import AdaptiveModel

T = TypeVar("T")


def gathered(processes: Processes, own: Tensor) -> Tensor:
    """The rows [sum N, ...] of all processes in the batch's order; gradients reach this process's own rows [N, ...]."""
    count = own.new_tensor([len(own)], dtype=torch.long)
    # Processes may have different numbers of rows (tokens that a loss averages over), and none knows the others'.
    found = [torch.empty_like(count) for _ in range(processes.count)]
    distributed.all_gather(found, count)
    counts = [int(count) for count in found]
    # `all_gather` wants equal shapes.
    padded = own.new_zeros((max(counts), *own.shape[1:]))
    padded[: len(own)] = own.detach()
    parts = [torch.empty_like(padded) for _ in counts]
    distributed.all_gather(parts, padded)
    parts = [part[:count] for part, count in zip(parts, counts, strict=True)]
    # Only this part has a gradient: the other rows get theirs in their own processes, which compute the same loss.
    parts[processes.rank] = own
    return torch.cat(parts)


class DistributedTraining:
    """The model of a training, wrapped for several processes; a single process uses the model itself. With
    `fully_sharded` the parameters become shards permanently. A method that cannot be trained so is a `UsageError`.
    """

    def __init__(self, model: AdaptiveModel, processes: Processes, *, fully_sharded: bool) -> None:
        self.model, self.processes, self.fully_sharded = model, processes, fully_sharded
        self._call: Any = model
        if processes.is_single:
            return
        method = type(model.method)
        # Of the class itself, not inherited: a subclass may have other losses, and has to claim it anew.
        if not method.__dict__.get("supports_data_parallel", False):
            raise UsageError(
                f"A method trained in several processes must compute its losses over the whole batch, which "
                f"{model.spec} does not claim (`supports_data_parallel` of {method.__name__}): they might cover only "
                f"the rows of each process. Train it in one process, without torchrun."
            )
        model.spread = partial(gathered, processes)
        if fully_sharded:
            for layer in range(model.backbone.num_layers):
                # Branch by branch, so that only one is whole at a time; the call on the model shards what is left.
                fully_shard(model.backbone.attention(layer))
                fully_shard(model.backbone.mlp(layer))
            fully_shard(model)
        else:
            ids = [torch.cuda.current_device()] if next(model.parameters()).is_cuda else None
            # A parameter may be unused in a step, if a method runs no predictor or leaves out a layer.
            self._call = DistributedDataParallel(model, device_ids=ids, find_unused_parameters=True)

    def part(self, batch: Sequence[T]) -> Sequence[T]:
        """This process's rows of a micro-batch; a `UsageError` if there are fewer rows than processes."""
        if len(batch) < self.processes.count:
            raise UsageError(
                f"Every process needs a row of each micro-batch, got {len(batch)} rows for {self.processes.count} "
                "processes. Lower train.accumulation or raise train.batch_size."
            )
        # Consecutive rows, so that the gathered ones are in the order of the batch.
        edges = [len(batch) * rank // self.processes.count for rank in (self.processes.rank, self.processes.rank + 1)]
        return batch[edges[0] : edges[1]]

    def loss(self, tensors: dict[str, Tensor]) -> Tensor:
        """The loss of the whole micro-batch."""
        loss: Tensor = self._call(**tensors, return_logits=False).loss
        return loss

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradient. In the last micro-batch of a step, gradients are averaged over processes."""
        if self.fully_sharded and not self.processes.is_single:
            self._call.set_requires_gradient_sync(last)
        # Averaging divides by the number of processes, but each process has only its rows' part of the gradient's sum.
        (loss * self.processes.count).backward()

    def syncing(self, last: bool) -> Any:
        """The context for the forward and backward pass of a micro-batch."""
        # DDP averages within the backward pass; in all but the last micro-batch that is traffic for nothing.
        waits = isinstance(self._call, DistributedDataParallel) and not last
        return self._call.no_sync() if waits else nullcontext()

    def gather_weights(self) -> None:
        """Gather every sharded parameter, one after the other, on the process that writes the model."""
        known: dict[int, nn.Parameter] = {}  # keeps shared parameters shared
        for module in self.model.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                if isinstance(parameter, DTensor):
                    if id(parameter) not in known:
                        full = parameter.full_tensor()  # all processes take part
                        kept = full if self.processes.is_main_process else full.new_empty(0)
                        known[id(parameter)] = nn.Parameter(kept, requires_grad=parameter.requires_grad)
                    setattr(module, name, known[id(parameter)])


def whole(tensor: Tensor) -> Tensor:
    """The whole tensor of one that may be sharded; all processes must call this in the same order."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def like(saved: Tensor, current: Tensor) -> Tensor:
    """A whole tensor, sharded like `current`."""
    if not isinstance(current, DTensor):
        return saved
    return distribute_tensor(saved.to(current.device), current.device_mesh, current.placements)
