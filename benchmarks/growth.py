"""Measures how the speed-up at 50 % of skipped tokens grows with layers, width, length and batch.

Model: Llama with MLP of 8/3 H, heads of 64 (three or two of them share a key/value head), random weights, fp32,
vocabulary 1024, one thread. One size at a time changes from the middle point (H 512, 4 layers, 128 tokens of prompt,
batch 8). Tokens are skipped at random. The felt share is saved time over saved net FLOPs: it is 1 if the whole saving
is felt as time, 0 if none of it is, and negative if skipping costs time.

Key: `growth`, a list of rows with the size that changes (`axis`, `value`), `phase`, `dense_speedup`, `speedup`, `net`
and `felt`.
"""

from __future__ import annotations

import argparse
from typing import Any

from measure import drives, llama, merge, ratio, saved_net, tokens, use_processor

from adaptive_bench.model.efficiency import decode_in_turns, prefill_in_turns

MIDDLE = {"layers": 4, "width": 512, "length": 128, "batch": 8}
SIZES = {"layers": (2, 4, 8), "width": (256, 512, 768, 1024), "length": (128, 512, 1024), "batch": (1, 8, 32)}
VARIANTS = {"dense": ("dense", 0.0), "50": ("random_skip", 0.5)}
VOCABULARY, THREADS = 1024, 1


def measure_size(size: dict[str, int], rounds: int, steps: int) -> list[dict[str, Any]]:
    """Both phases at one size."""
    heads = size["width"] // 64
    plain = llama(
        hidden=size["width"],
        layers=size["layers"],
        inner=size["width"] * 8 // 3 // 32 * 32,
        vocabulary=VOCABULARY,
        heads=heads,
        kv_heads=heads // (3 if heads % 3 == 0 else 2),
    )
    text = tokens(size["batch"], size["length"] + steps, VOCABULARY)
    found = []
    for phase in ("prefill", "decode"):
        variants = drives(plain, VARIANTS)
        if phase == "prefill":
            times = prefill_in_turns(variants, text[:, : size["length"]], rounds, warm_up=1)
        else:
            times = decode_in_turns(variants, text, size["length"])
        ledger = variants["50"].ledger
        assert ledger is not None
        net = saved_net(variants["50"]) if phase == "prefill" else float(ledger.report()["decode"]["net"])
        speedup = ratio(times["plain"], times["50"])
        found.append(
            {
                "phase": phase,
                "dense_speedup": ratio(times["plain"], times["dense"]),
                "speedup": speedup,
                "net": net,
                "felt": (1 - 1 / speedup) / net,
            }
        )
    return found


def measure(rounds: int, steps: int) -> list[dict[str, Any]]:
    """Rows for every size; the middle point is measured only once."""
    known: dict[tuple[int, ...], list[dict[str, Any]]] = {}
    rows = []
    for axis, values in SIZES.items():
        for value in values:
            size = MIDDLE | {axis: value}
            key = tuple(size.values())
            if key not in known:
                known[key] = measure_size(size, rounds, steps)
            rows += [{"axis": axis, "value": value, **row} for row in known[key]]
    return rows


def main() -> None:
    """Measure, print and merge into `results.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=24)
    arguments = parser.parse_args()
    use_processor(THREADS)
    rows = measure(arguments.rounds, arguments.steps)
    merge("growth", {"growth": rows}, middle=MIDDLE, rounds=arguments.rounds, steps=arguments.steps)


if __name__ == "__main__":
    main()
