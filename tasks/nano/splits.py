"""Train, calibration and test items that cannot overlap: a hash of an item's key decides its split, not the seed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from typing import Literal

from .item import Item

Split = Literal["train", "calibration", "test"]
# Ten buckets: 0-7 train, 8 calibration, 9 test.
_SPLITS: tuple[Split, ...] = ("train",) * 8 + ("calibration", "test")


def split_of(key: str) -> Split:
    """The split a key belongs to, the same on every machine and in every Python."""
    digest = hashlib.sha256(key.encode()).digest()
    return _SPLITS[int.from_bytes(digest[:8], "big") % len(_SPLITS)]


def stream(make: Callable[[random.Random], Item], split: Split, seed: int) -> Iterator[Item]:
    """Endless items of one split. Candidates of another split are thrown away.

    The split is part of the random seed too, so that equal seeds of two splits do not share their candidates.
    """
    source = random.Random(f"{split}/{seed}")
    while True:
        item = make(source)
        if split_of(item.key) == split:
            yield item
