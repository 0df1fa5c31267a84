"""Measures prefill against plain Hugging Face by share of saved tokens, and the start-up of the command line.

Model: Llama of 4 layers, H 768, 12 heads with 4 key/value heads, MLP 3072, random weights, fp32. Input: 4 x 512
tokens, no padding, one full forward pass without a cache, 2 threads. The vocabulary is only 1,024, so that the head
(0.8 M of 37 M MACs per token), which no method can skip, does not hide the effect. Skipped tokens' K,V are recomputed.

Keys: `dense_over_plain`, time of the dense wrapper over plain time; `packed_P_speedup`, plain time over packed time
with P percent of token-branches skipped at random (`packed_25_speedup`, `packed_50_speedup`, ...); `packed_P_net`, net
FLOPs saved there; `plain_s`, seconds of the plain model; `help_s`, seconds of `adaptive-bench --help` as a process.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from measure import llama, merge, ratio, tokens, use_processor

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.efficiency import in_turns

BATCH, LENGTH, THREADS = 4, 512, 2
SHARES = (0.15, 0.25, 0.35, 0.5, 0.7)


@torch.no_grad()
def measure(rounds: int) -> dict[str, float]:
    """Times of the variants, which take turns over some rounds, as ratios to plain Hugging Face."""
    plain = llama(hidden=768, layers=4, inner=3072, vocabulary=1024, heads=12, kv_heads=4)
    input_ids = tokens(BATCH, LENGTH, 1024)
    dense = AdaptiveModel.build(plain, "dense").eval()
    packed = {}
    for share in SHARES:
        packed[f"packed_{share:.0%}".rstrip("%")] = model = AdaptiveModel.build(plain, "random_skip").eval()
        model.dial = share

    def call(model: torch.nn.Module) -> Callable[[], object]:
        return lambda: model(input_ids)

    variants = {"plain": lambda: plain(input_ids, use_cache=False), "dense": call(dense)}
    times = in_turns(variants | {name: call(model) for name, model in packed.items()}, rounds)
    speedups = {f"{name}_speedup": ratio(times["plain"], times[name]) for name in packed}
    net = {f"{name}_net": model.compute_report()["saved"]["net"] for name, model in packed.items()}
    return {
        "dense_over_plain": ratio(times["dense"], times["plain"]),
        **speedups,
        **net,
        "plain_s": statistics.median(times["plain"]),
    }


def help_seconds(rounds: int) -> float:
    """Median wall time of `adaptive-bench --help` as a separate process."""
    command = [str(Path(sys.executable).parent / "adaptive-bench"), "--help"]
    taken = []
    for _ in range(rounds + 1):
        start_s = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - start_s)
    return statistics.median(taken[1:])


def main() -> None:
    """Measure, print and merge into `results.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    use_processor(THREADS)
    values = {**measure(rounds), "help_s": help_seconds(rounds)}
    merge("prefill", values, model="Llama H 768, 4 layers", batch=BATCH, length=LENGTH, rounds=rounds)


if __name__ == "__main__":
    main()
