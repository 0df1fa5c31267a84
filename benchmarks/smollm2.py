"""Measures SmolLM2-135M's shape, with random weights, against plain Hugging Face and lm-eval's adapter.

    ADAPTIVE_BENCH_DATA=<folder> python benchmarks/smollm2.py

Model: Llama of 30 layers, H 576, 9 heads with 3 key/value heads, MLP 1536, tied vocabulary of 49,152, random weights,
fp32, 2 threads; 4 x 256 tokens unless stated otherwise. Everything runs in one process, with variants in turn.

* Training: a step of forward, backward, clipping and AdamW in which every token is learned; all on one backbone.
* Prefill: one forward pass into an empty cache, with logits of the last position.
* Decode: one more token per row after 128 tokens; all variants read the same given tokens.
* Evaluation: time inside the adapters, as in `evaluation`, with the nano tokenizer. Log-likelihoods need the folder
  with `piqa` that `evaluation` describes, and are left out without it.

Key: `smollm2`, lists of rows under `training` (`variant`, `speedup`, `tokens_per_s`), `prefill` (`variant`, `speedup`,
`net`), `decode` (`batch`, `variant`, `speedup`, `net`, `step_ms`) and `evaluation` (`case`, `speedup`).
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evaluation
import torch
from evaluation import Adapters, Case
from measure import drives, llama, merge, ratio, saved_net, tokens, use_processor
from training_step import training_step
from transformers import LlamaForCausalLM

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.efficiency import decode_in_turns, in_turns, prefill_in_turns
from adaptive_bench.runs.backbone_source import find_backbone

SHAPE = {"hidden": 576, "layers": 30, "inner": 1536, "vocabulary": 49_152, "heads": 9, "kv_heads": 3}
BATCH, LENGTH, THREADS = 4, 256, 2
PROMPT, BATCHES = 128, (1, 8, 32)
# Key of a variant: method spec and share of saved tokens.
PREFILL = {
    "dense": ("dense", 0.0),
    "15": ("random_skip", 0.15),
    "25": ("random_skip", 0.25),
    "50": ("random_skip", 0.5),
    "layers": ("static_depth", 8 / 30),
}
DECODE = {key: PREFILL[key] for key in ("dense", "25", "50")}
CASES = {
    "0 shots": Case("piqa", 0, 16, 4),
    "5 shots": Case("piqa", 5, 4, 4),
    "generation": Case("nano_math", 0, 8, 8),
}

Row = dict[str, Any]


def plain_step(model: LlamaForCausalLM) -> Callable[[], float]:
    """An optimizer step of a plain loop; see `training_step`."""
    ids = tokens(BATCH, LENGTH, model.config.vocab_size)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def step() -> float:
        model.train()
        optimizer.zero_grad()
        loss = model(ids, attention_mask=torch.ones_like(ids), labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    return step


def training(plain: LlamaForCausalLM, rounds: int) -> list[Row]:
    """Speed of training steps; they change the weights of the plain model."""
    steps = {"plain": plain_step(plain)}
    for spec in ("dense", "gateskip"):
        model = AdaptiveModel.build(plain, spec, seed=1)
        steps[spec] = training_step(model, BATCH, LENGTH, prompt=0, return_logits=False)
    times = in_turns(steps, rounds, warm_up=1)
    return [
        {
            "variant": name,
            "speedup": ratio(times["plain"], found),
            "tokens_per_s": BATCH * LENGTH / statistics.median(found),
        }
        for name, found in times.items()
    ]


def prefill(plain: LlamaForCausalLM, rounds: int) -> list[Row]:
    """Speed of reading prompts."""
    variants = drives(plain, PREFILL)
    times = prefill_in_turns(variants, tokens(BATCH, LENGTH, plain.config.vocab_size), rounds)
    return [
        {"variant": key, "speedup": ratio(times["plain"], times[key]), "net": saved_net(variants[key])}
        for key in PREFILL
    ]


def decode(plain: LlamaForCausalLM, steps: int) -> list[Row]:
    """Speed of writing one more token per row."""
    rows = []
    for batch in BATCHES:
        variants = drives(plain, DECODE)
        times = decode_in_turns(variants, tokens(batch, PROMPT + steps, plain.config.vocab_size), PROMPT)
        rows += [
            {
                "batch": batch,
                "variant": key,
                "speedup": ratio(times["plain"], times[key]),
                "net": saved_net(variants[key]),
                "step_ms": 1e3 * statistics.median(times[key]),
            }
            for key in DECODE
        ]
    return rows


def evaluated(plain: LlamaForCausalLM, data: Path | None, rounds: int) -> list[Row]:
    """Speed of this package's adapter relative to lm-eval's own."""
    with tempfile.TemporaryDirectory() as folder:
        if data is not None:
            evaluation.write_data(data, Path(folder))
        adapters = Adapters(plain, find_backbone("nano").load_tokenizer(), Path(folder), time.perf_counter)
        return [
            {"case": name, "speedup": statistics.median(evaluation.speedups(adapters, case, rounds))}
            for name, case in CASES.items()
            if data is not None or case.task != "piqa"
        ]


def main() -> None:
    """Measure, print and merge into `results.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("ADAPTIVE_BENCH_DATA"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=32)
    given = parser.parse_args()
    data = None if given.data_dir is None else Path(given.data_dir)
    use_processor(THREADS)
    plain = llama(**SHAPE, tie_word_embeddings=True)
    found = {
        "prefill": prefill(plain, given.rounds),
        "decode": decode(plain, given.steps),
        "evaluation": evaluated(plain, data, (given.rounds + 2) // 3),
        "training": training(plain, (given.rounds + 1) // 2),
    }
    merge("smollm2", {"smollm2": found}, model="SmolLM2-135M's shape", rounds=given.rounds, steps=given.steps)


if __name__ == "__main__":
    main()
