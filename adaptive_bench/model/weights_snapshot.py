"""Notices that the weights of a model have changed since something was measured on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from adaptive_bench.backbone import plain_parts

_PER_AXIS = 8  # a sample takes at least this many values along each axis of a tensor (or all if it has fewer)


class Snapshot:
    """A snapshot of weights, to detect later whether they have changed.

    Weights count as unchanged if they are the same tensors, nothing wrote into them (torch counts writes), and a sample
    of their values is the same. The sample detects writes that torch does not count: those to `parameter.data`, by
    which peft merges adapters, and those of fused optimizers. A new dtype or device does not count as a change.

    Args:
        tensors: The weights, in an order that does not change.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._tensors: tuple[Tensor, ...] | None = tuple(tensors)
        self._writes = [_writes(tensor) for tensor in self._tensors]
        self._sampled = _sample(self._tensors)

    def holds(self, tensors: Iterable[Tensor]) -> bool:
        """Whether these are the weights of the snapshot, with the same values."""
        found, then = tuple(tensors), self._tensors
        if then is None or [*map(id, found)] != [*map(id, then)] or [*map(_writes, found)] != self._writes:
            return False
        # Only tensors without values (on the device `meta`).
        if not self._sampled:
            return True
        now = _sample(found)
        # If the weights were rounded to another dtype since, the sample is rounded likewise before comparing.
        before = [one.to(other) for one, other in zip(self._sampled, now, strict=True)]
        one, other = (torch.cat([part.to(now[0].device) for part in parts]) for parts in (before, now))
        return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Copy the snapshot with its model: the copy refers to the copied tensors if the snapshot still held."""
        tensors = self._tensors
        # `holds` compares identities, so a copy has to be taken anew of the copied tensors.
        return _copied, (tensors if tensors is not None and self.holds(tensors) else None,)


def _copied(tensors: tuple[Tensor, ...] | None) -> Snapshot:
    # `None` stands for a snapshot that did not hold: its copy must not hold either.
    found = Snapshot(tensors or ())
    found._tensors = tensors
    return found


def _writes(tensor: Tensor) -> int:
    """The number of writes into a tensor that torch counted; 0 for inference tensors, where it counts none."""
    return 0 if tensor.is_inference() else tensor._version


def _sample(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Some values of each tensor, spread evenly over all its axes; tensors without values are left out."""
    return [
        tensor.detach()[tuple(slice(None, None, max(1, size // _PER_AXIS)) for size in tensor.shape)].flatten().clone()
        for whole in tensors
        for tensor in plain_parts(whole)
        if tensor.numel() and not tensor.is_meta
    ]
