"""Wall time of several variants in turn, so that whatever else the machine does meets all of them alike."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Quantiles:
    """A median with its quartiles.

    Attributes:
        median, low, high: Median, lower and upper quartile.
        count: Measurements behind them.
    """

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Quantiles:
        """Summarise at least one value."""
        ordered = sorted(values)
        median = statistics.median(ordered)
        if len(ordered) == 1:
            return cls(median, median, median, 1)
        low, _, high = statistics.quantiles(ordered, n=4, method="inclusive")
        return cls(median, low, high, len(ordered))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def in_turns(
    variants: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warm_up: int = 2,
    device: torch.device | str = "cpu",
) -> dict[str, list[float]]:
    """Seconds of each variant, one entry a round; entries of the same round belong together.

    Every round calls every variant once, in an order drawn anew (the same ones each time): nobody always runs behind
    the same neighbour.

    Args:
        variants: What to call, by name.
        rounds: Rounds that count.
        warm_up: Rounds before them that do not.
        device: Where the work happens; a CUDA device is waited for before and after each call.
    """
    wait = torch.cuda.synchronize if torch.device(device).type == "cuda" else lambda: None
    order, shuffle = list(variants), random.Random(0).shuffle
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(warm_up + rounds):
        shuffle(order)
        for name in order:
            wait()
            start_s = time.perf_counter()
            variants[name]()
            wait()
            if number >= warm_up:
                taken[name].append(time.perf_counter() - start_s)
    return taken


def speedups(plain_s: Sequence[float], ours_s: Sequence[float]) -> Quantiles:
    """Plain time over our time, within each round."""
    return Quantiles.of(plain / ours for plain, ours in zip(plain_s, ours_s, strict=True))
