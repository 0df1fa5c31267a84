"""Speed of the engine against plain Hugging Face, measured side by side in one process.

    python benchmarks/engine_speed.py            # prints the ratios and writes benchmarks/results.json

Model: Llama of 4 layers, H 768, 12 heads with 4 key/value heads, MLP 3072, random weights, fp32. Input: 4 x 512
tokens, no padding, one full forward pass, 2 threads. The vocabulary is 1,024 so that the head (0.8 M of 37 M MACs a
token), which no method can skip, does not drown what is measured; K,V of skipped tokens are recomputed. Rounds
alternate between the variants and every ratio is taken within a round; the median is reported.

Keys: `dense_over_plain` time of the dense wrapper over plain time; `packed_25_speedup`, `packed_50_speedup` plain
time over packed time with that share of token-branches skipped at random; `help_s` seconds of `adaptive-bench
--help` as a whole process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from adaptive_bench.model import AdaptiveModel

BATCH, LENGTH, THREADS = 4, 512, 2
CONFIG = LlamaConfig(
    hidden_size=768,
    intermediate_size=3072,
    num_hidden_layers=4,
    num_attention_heads=12,
    num_key_value_heads=4,
    vocab_size=1024,
    max_position_embeddings=LENGTH,
)


def seconds(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(rounds: int) -> dict[str, float]:
    """Median time of each variant over a few alternating rounds, as ratios against plain Hugging Face."""
    torch.manual_seed(0)
    plain = LlamaForCausalLM(CONFIG).eval()
    input_ids = torch.randint(0, CONFIG.vocab_size, (BATCH, LENGTH))
    dense = AdaptiveModel.build(plain, "dense").eval()
    packed = {}
    for share in (0.25, 0.5):
        packed[share] = AdaptiveModel.build(plain, "random_skip").eval()
        packed[share].dial = share
    variants: dict[str, Callable[[], object]] = {
        "plain": lambda: plain(input_ids, use_cache=False),
        "dense": lambda: dense(input_ids),
        "packed_25": lambda: packed[0.25](input_ids),
        "packed_50": lambda: packed[0.5](input_ids),
    }
    times: dict[str, list[float]] = {name: [] for name in variants}
    with torch.no_grad():
        for round_number in range(rounds + 2):
            for name, call in variants.items():
                elapsed = seconds(call)
                if round_number >= 2:  # two rounds of warm-up
                    times[name].append(elapsed)

    def ratio(above: str, below: str) -> float:
        return statistics.median(a / b for a, b in zip(times[above], times[below], strict=True))

    for share, model in packed.items():
        print(f"skipped {share:.0%}: measured {model.compute_report()['saved']}")
    return {
        "dense_over_plain": ratio("dense", "plain"),
        "packed_25_speedup": ratio("plain", "packed_25"),
        "packed_50_speedup": ratio("plain", "packed_50"),
        "plain_s": statistics.median(times["plain"]),
    }


def help_seconds(rounds: int) -> float:
    """Median wall time of `adaptive-bench --help` as a process of its own."""
    command = [str(Path(sys.executable).parent / "adaptive-bench"), "--help"]
    run = lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: E731
    run()
    return statistics.median(seconds(run) for _ in range(rounds))


def main() -> None:
    """Measure, print and write `benchmarks/results.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(THREADS)
    results: dict[str, object] = {**measure(rounds), "help_s": help_seconds(rounds)}
    results["setup"] = {
        "batch": BATCH,
        "length": LENGTH,
        "threads": THREADS,
        "rounds": rounds,
        "torch": torch.__version__,
    }
    Path(__file__).with_name("results.json").write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
