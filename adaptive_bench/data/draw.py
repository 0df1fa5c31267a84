"""Which rows of a training split are trained on, which calibrate thresholds, and which are for choosing settings.

A tenth of the rows is held out, chosen by a hash of each row's key: seven of ten of those calibrate, three are
validation documents. The choice does not depend on seed, order or machine, and no row has two uses.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from adaptive_bench.task import ExampleRequest

Use = Literal["train", "calibration", "validation"]


def draw(
    rows: Iterable[dict[str, Any]], key: Callable[[Mapping[str, Any]], str], request: ExampleRequest
) -> list[dict[str, Any]]:
    """The rows of a request: `count` of the split's rows in seeded order, or all of them if there are fewer."""
    wanted = held_out(rows, key, request.split)
    random.Random(request.seed).shuffle(wanted)
    return wanted[: request.count]


def held_out(rows: Iterable[dict[str, Any]], key: Callable[[Mapping[str, Any]], str], use: Use) -> list[dict[str, Any]]:
    """The rows of one use, in their order."""
    return [row for row in rows if _use(key(row)) == use]


def _use(key: str) -> Use:
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
    if number % 10:
        return "train"
    return "validation" if number // 10 % 10 < 3 else "calibration"
