"""Measures how much of a decode step is spent in products with weights.

It runs the models, batches and variants of `decode`, with every linear map (and the product with the head) timed from
outside. The time in products shows how fast a variant could be if everything else were free: a leaner engine can save
the remaining time, but not the time in products.

Key: `decode_parts`, a list of rows with `batch`, `variant` (`plain` besides those of `decode`), `step_ms` and
`products_ms` (medians over steps), and `products`, the number of products in a step.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import decode
import torch
from measure import drives, llama, merge, tokens, use_processor
from torch.nn import functional

from adaptive_bench.backbone import step
from adaptive_bench.model.efficiency import Drive, steps_of


class Products:
    """Sums up the time spent in products with weights.

    Attributes:
        seconds, count: Time in products and their number since the last `reset`.
    """

    def __init__(self) -> None:
        self._inside = False
        self.reset()

    def reset(self) -> None:
        self.seconds, self.count = 0.0, 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose time is added; nested calls count once."""

        def run(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return function(*args, **kwargs)
            self._inside, start_s = True, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start_s
                self.count += 1
                self._inside = False

        return run

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Time the products of Hugging Face's modules and of the step's arithmetic inside the `with` block."""
        with (
            patch.object(functional, "linear", self.timed(functional.linear)),
            patch.object(step, "compute", self.timed(step.compute)),
        ):
            yield


@torch.no_grad()
def parts(variants: dict[str, Drive], text: Any, prompt: int) -> dict[str, tuple[list[float], list[float], list[int]]]:
    """For each variant, the seconds of each step, its seconds in products, and its number of products.

    The variants take their steps in turn.
    """
    products = Products()
    found: dict[str, tuple[list[float], list[float], list[int]]] = {name: ([], [], []) for name in variants}
    for warm in (True, False):
        calls = steps_of(variants, text[:, : prompt + 3] if warm else text, prompt)
        with products.watched():
            for _ in range(3 if warm else text.shape[1] - prompt):
                for name, take in calls.items():
                    products.reset()
                    start_s = time.perf_counter()
                    take()
                    if not warm:
                        seconds = time.perf_counter() - start_s
                        for into, value in zip(found[name], (seconds, products.seconds, products.count), strict=True):
                            into.append(value)  # type: ignore[arg-type]
    return found


def measure(steps: int) -> list[dict[str, Any]]:
    """A row for every batch and variant."""
    plain = llama(**decode.MODEL)
    rows = []
    for batch in decode.BATCHES:
        variants = drives(plain, decode.VARIANTS, calibrate_on=(16, decode.PROMPT + steps))
        text = tokens(batch, decode.PROMPT + steps, decode.MODEL["vocabulary"])
        for name, (whole, inside, count) in parts(variants, text, decode.PROMPT).items():
            medians = {
                "step_ms": 1e3 * statistics.median(whole),
                "products_ms": 1e3 * statistics.median(inside),
                "products": statistics.median(count),
            }
            rows.append({"batch": batch, "variant": name, **medians})
    return rows


def main() -> None:
    """Measure, print and merge into `results.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=64)
    steps = parser.parse_args().steps
    use_processor(decode.THREADS)
    merge("decode_parts", {"decode_parts": measure(steps)}, model=decode.NAME, prompt=decode.PROMPT, steps=steps)


if __name__ == "__main__":
    main()
