"""Measures decoding token by token against plain Hugging Face.

Model: Llama of 4 layers, H 768, 12 heads with 4 key/value heads, MLP 2048, vocabulary 4096, random weights, fp32.
Prompt of 128 tokens, one thread. All variants take their steps in turn and read the same given tokens.

Keys, for batches B of 1, 8 and 32: `decode_bB_V`, median over steps of plain time over the variant's time, where V is
`dense`, `25` or `50` (percent of token-branches skipped at random), `gateskip_scalar_50`;
`decode_bB_V_net`, net FLOPs saved over prompt and new tokens; `decode_bB_plain_ms`, time of a step of the plain model.
"""

from __future__ import annotations

import argparse
import statistics

from measure import drives, llama, merge, ratio, saved_net, tokens, use_processor

from adaptive_bench.model.efficiency import decode_in_turns

PROMPT, THREADS, BATCHES = 128, 1, (1, 8, 32)
MODEL = {"hidden": 768, "layers": 4, "inner": 2048, "vocabulary": 4096, "heads": 12, "kv_heads": 4}
NAME = "Llama H 768, 4 layers, MLP 2048"
# Key of a variant: method spec and share of saved tokens.
VARIANTS = {
    "dense": ("dense", 0.0),
    "25": ("random_skip", 0.25),
    "50": ("random_skip", 0.5),
    "gateskip_scalar_50": ("gateskip[shape=scalar]", 0.5),
}


def measure(steps: int) -> dict[str, float]:
    """Speed-ups at every batch size."""
    plain = llama(**MODEL)
    values: dict[str, float] = {}
    for batch in BATCHES:
        variants = drives(plain, VARIANTS, calibrate_on=(16, PROMPT + steps))
        times = decode_in_turns(variants, tokens(batch, PROMPT + steps, MODEL["vocabulary"]), PROMPT)
        for key in VARIANTS:
            values[f"decode_b{batch}_{key}"] = ratio(times["plain"], times[key])
            values[f"decode_b{batch}_{key}_net"] = saved_net(variants[key])
        values[f"decode_b{batch}_plain_ms"] = 1e3 * statistics.median(times["plain"])
    return values


def main() -> None:
    """Measure, print and merge into `results.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=64)
    steps = parser.parse_args().steps
    use_processor(THREADS)
    merge("decode", measure(steps), model=NAME, prompt=PROMPT, steps=steps)


if __name__ == "__main__":
    main()
