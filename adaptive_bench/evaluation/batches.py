"""Forms batches of rows of similar length that fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from adaptive_bench import processes
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.free_memory import usable_bytes

if TYPE_CHECKING:
    from adaptive_bench.model import AdaptiveModel

T = TypeVar("T")

# On a CPU a batch of this many slots (rows times the longest row) computes as fast per slot as a larger one. For
# smaller batches, padding costs less than another call.
_ENOUGH_SLOTS = 512
_SIMILAR = 0.75  # shorter rows than this share of the longest begin another batch
_VALUE_BYTES = 4  # fp32


class OutOfMemory(EnvironmentProblem):
    """A batch does not fit into memory. `evaluate` halves the batch and starts again."""


class Room:
    """Estimates how many rows a model can process at once in the memory that is free now.

    A token takes memory for its keys and values in every layer, and for the activations of one branch. A scored
    position also takes memory for its logits, and for a copy of them while they are normalised.
    """

    def __init__(self, model: AdaptiveModel) -> None:
        backbone, shape = model.backbone, model.backbone.config
        heads, layers = shape.num_attention_heads, backbone.num_layers
        # Values per token in the cache: keys and values of all layers, with fewer heads under grouped-query attention.
        kept = 2 * layers * getattr(shape, "num_key_value_heads", heads) * shape.hidden_size / heads
        self._token = _VALUE_BYTES * (2 * kept + 12 * shape.hidden_size + 4 * shape.intermediate_size)
        # Per pair of tokens: eager attention holds tables of scores [heads, S, S], fused attention only a mask [S, S].
        self._pair = _VALUE_BYTES * (3 * heads if backbone.eager else 1)
        self._scored = 2 * _VALUE_BYTES * backbone.vocab_size
        # All processes use the smallest memory among them, so that they form the same batches.
        every = processes.current_group().gather(usable_bytes(next(model.parameters()).device))
        self._usable = None if None in every else min(every)

    def fits(self, rows: int, length: int, scored: int = 1) -> bool:
        """Whether `rows` rows of `length` tokens with `scored` positions of logits each fit; one row always does."""
        held = rows * (length * (self._token + length * self._pair) + scored * self._scored)
        return rows == 1 or self._usable is None or held <= self._usable

    def rows(self, most: int, length: int) -> int:
        """The number of rows that fits: `most`, halved until it does."""
        while not self.fits(most, length):
            most //= 2
        return most


def batches(
    items: Sequence[T], limit: int, *, length: Callable[[T], int], fits: Callable[[int, int], bool] = lambda *_: True
) -> Iterator[list[T]]:
    """Cut items into batches of at most `limit` rows of similar length, longest first, so that memory runs out early or
    not at all; `fits(rows, tokens)` says whether a batch of that size fits into memory.
    """
    batch: list[T] = []
    longest = 0
    for item in sorted(items, key=length, reverse=True):
        dissimilar = length(item) < _SIMILAR * longest and len(batch) * longest >= _ENOUGH_SLOTS
        full = len(batch) == limit or not fits(len(batch) + 1, longest)
        # Never empty: a single row that does not fit is tried anyway, and may still run out of memory.
        if batch and (full or dissimilar):
            yield batch
            batch = []
        longest = length(item) if not batch else longest  # items are sorted: the first is the longest
        batch.append(item)
    if batch:
        yield batch


def alike(items: Sequence[T], key: Callable[[T], int]) -> Iterator[list[T]]:
    """Groups of items with the same key, smallest key first; items keep their order."""
    return (list(members) for _, members in groupby(sorted(items, key=key), key=key))


def fixed_batches(items: Sequence[T], limit: int) -> Iterator[list[T]]:
    """Batches of `limit` items in the given order, for methods whose results depend on the batch."""
    return (list(items[start : start + limit]) for start in range(0, len(items), limit))
