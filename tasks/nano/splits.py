"""Train, calibration, validation and test items that cannot overlap: a hash of an item's key decides, not the seed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from typing import Literal, Protocol, TypeVar

Split = Literal["train", "calibration", "validation", "test"]
# Ten buckets: 0-6 train, 7 calibration (thresholds), 8 validation (everything that is tuned by hand), 9 test.
_SPLITS: tuple[Split, ...] = ("train",) * 7 + ("calibration", "validation", "test")


class Keyed(Protocol):
    """Anything that says what decides its split."""

    @property
    def key(self) -> str: ...


K = TypeVar("K", bound=Keyed)


def split_of(key: str) -> Split:
    """The split a key belongs to, the same on every machine and in every Python."""
    digest = hashlib.sha256(key.encode()).digest()
    return _SPLITS[int.from_bytes(digest[:8], "big") % len(_SPLITS)]


def stream(make: Callable[[random.Random], K], split: Split, seed: int) -> Iterator[K]:
    """Endless items of one split. Candidates of another split are thrown away.

    The split is part of the random seed too, so that equal seeds of two splits do not share their candidates.
    """
    source = random.Random(f"{split}/{seed}")
    while True:
        item = make(source)
        if split_of(item.key) == split:
            yield item


def distinct(items: Iterator[K]) -> Iterator[K]:
    """The same items, each key once."""
    seen = set()
    for item in items:
        if item.key not in seen:
            seen.add(item.key)
            yield item
