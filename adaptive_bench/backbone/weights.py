"""Whether weights are still those that something was derived from: copies in another layout, measured thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from adaptive_bench.backbone.quantization import plain_parts

_PER_AXIS = 8  # values that a sample takes along each axis of a tensor, at least


class Snapshot:
    """What some weights are at a moment, to tell later whether they still are.

    They are as long as they are the same tensors, nobody wrote into them (torch counts writes), and a sample of their
    values has not changed. The sample is for writes that torch does not count: those to `parameter.data`, which is how
    peft merges adapters, and those of fused optimizers. Another type or device is no other value: see `moved`.

    Args:
        tensors: In an order that does not change.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._tensors: tuple[Tensor, ...] | None = tuple(tensors)
        self._writes = [_writes(tensor) for tensor in self._tensors]
        self._places = [(tensor.dtype, tensor.device) for tensor in self._tensors]
        self._sample = _sample(self._tensors)

    def holds(self, tensors: Iterable[Tensor], *, look: bool = True) -> bool:
        """Whether these are the weights of the snapshot, with the same values.

        Args:
            look: Look at the sample too; without it only what torch counts is noticed, in less than a microsecond each.
        """
        now, then = tuple(tensors), self._tensors
        if then is None or len(now) != len(then) or any(one is not other for one, other in zip(now, then, strict=True)):
            return False
        if [_writes(tensor) for tensor in now] != self._writes:
            return False
        return not look or self._looks_the_same(now)

    @property
    def moved(self) -> bool:
        """Whether a tensor has another type or device than it had."""
        now = [(tensor.dtype, tensor.device) for tensor in self._tensors or ()]
        return now != self._places

    def _looks_the_same(self, tensors: Sequence[Tensor]) -> bool:
        if not self._sample:
            return True
        now = _sample(tensors)
        # Values that were rounded to another type since are compared as they were rounded.
        then = [before.to(after) for before, after in zip(self._sample, now, strict=True)]
        one, other = (torch.cat([part.to(now[0].device) for part in parts]) for parts in (then, now))
        return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A copy of a model takes the snapshot along to its own tensors, if it held when the model was copied."""
        tensors = self._tensors
        return _copied, (tensors if tensors is not None and self.holds(tensors) else None,)


def _copied(tensors: tuple[Tensor, ...] | None) -> Snapshot:
    found = Snapshot(tensors or ())
    found._tensors = tensors
    return found


def _writes(tensor: Tensor) -> int:
    """How often somebody wrote into a tensor; tensors of inference mode do not count."""
    return 0 if tensor.is_inference() else tensor._version


def _sample(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Some values of each tensor, spread evenly over all its axes; of tensors without values none."""
    return [
        tensor.detach()[tuple(slice(None, None, max(1, size // _PER_AXIS)) for size in tensor.shape)].flatten().clone()
        for whole in tensors
        for tensor in plain_parts(whole)
        if tensor.numel() and not tensor.is_meta
    ]
