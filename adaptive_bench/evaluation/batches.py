"""Batches of rows of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

T = TypeVar("T")

# A batch this large (in slots: rows times its longest row) computes as fast per slot as a larger one on a CPU; below
# that, padding costs less than another call.
_ENOUGH_SLOTS = 512
_SIMILAR = 0.75


def batches(items: Sequence[T], limit: int, *, length: Callable[[T], int]) -> Iterator[list[T]]:
    """Cut items into batches of at most `limit` rows of similar length in tokens, longest first: memory runs out early
    or not at all.
    """
    batch: list[T] = []
    longest = 0
    for item in sorted(items, key=length, reverse=True):
        dissimilar = length(item) < _SIMILAR * longest and len(batch) * longest >= _ENOUGH_SLOTS
        if len(batch) == limit or dissimilar:
            yield batch
            batch = []
        longest = length(item) if not batch else longest
        batch.append(item)
    if batch:
        yield batch


def alike(items: Sequence[T], key: Callable[[T], int]) -> Iterator[list[T]]:
    """Items that have the same key, smallest key first; otherwise in their order."""
    return (list(members) for _, members in groupby(sorted(items, key=key), key=key))


def fixed_batches(items: Sequence[T], limit: int) -> Iterator[list[T]]:
    """Batches of `limit` items in the order given, for methods whose results depend on who is in a batch."""
    return (list(items[start : start + limit]) for start in range(0, len(items), limit))
