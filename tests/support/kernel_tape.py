"""A CUDA graph that is none: kernels of the CPU, noted while a function runs and run again on the same tensors.

As with a graph, recording leaves every tensor as it was, Python has no say in what is repeated, and a result is
written to where it was when recorded.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def _storages(values):
    tensors = (one for one in tree_leaves(values) if isinstance(one, Tensor))
    return {one.untyped_storage()._cdata: one for one in tensors}


class _Recording(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.kernels: list[tuple[Any, Any, Any, Any]] = []
        self._made: set[int] = set()
        self._before: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = _storages((args, kwargs))
        if function._schema.is_mutable:
            for key, tensor in given.items():
                if key not in self._made and key not in self._before:
                    storage = tensor.untyped_storage()
                    self._before[key] = tensor, storage.clone()
        out = function(*args, **kwargs)
        self._made |= _storages(out).keys() - given.keys()
        self.kernels.append((function, args, kwargs, out))
        return out

    def undo(self):
        """Give tensors that were there before their values back."""
        for tensor, before in self._before.values():
            tensor.untyped_storage().copy_(before)

    def replay(self):
        """Run every kernel again."""
        for function, args, kwargs, out in self.kernels:
            given, again = _storages((args, kwargs)), function(*args, **kwargs)
            for old, new in zip(tree_leaves(out), tree_leaves(again), strict=True):
                if isinstance(old, Tensor) and old.untyped_storage()._cdata not in given:
                    old.copy_(new)


class Tape:
    """A recorder for `StaticSteps`."""

    def warm_up(self, run):
        """Run it."""
        return run()

    @torch.no_grad()
    def record(self, run):
        """Note its kernels, without effect; gives what repeats them."""
        recording = _Recording()
        with recording:
            step = run()
        recording.undo()
        return step, recording.replay
