"""Measures prefill and decoding on a device against plain Hugging Face and its compiled decoding (static cache)."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from measure import drives, ratio, tokens
from roofline import Counted, Peaks, counted
from transformers import LlamaForCausalLM, StaticCache

from adaptive_bench.model.efficiency import Drive, decode_in_turns, in_turns, prefill_in_turns

# Key of a variant: method spec and share of saved tokens.
VARIANTS = {
    "dense": ("dense", 0.0),
    "15": ("random_skip", 0.15),
    "25": ("random_skip", 0.25),
    "50": ("random_skip", 0.5),
    "70": ("random_skip", 0.7),
    "gateskip_50": ("gateskip[shape=scalar]", 0.5),
}
PREFILL_ROUNDS, LARGE_ROUNDS, LARGE = 7, 3, 2**16  # from LARGE tokens per call on, fewer rounds are steady enough
_FIRST_STEPS = 4  # of compiled decoding; their time, which includes warming up the graph, is subtracted

Row = dict[str, Any]


def variants(plain: LlamaForCausalLM, length: int) -> dict[str, Drive]:
    """The plain model and every variant, calibrated on random text of this length."""
    return drives(plain, VARIANTS, calibrate_on=(8, length))


def prefill(plain: LlamaForCausalLM, driven: Mapping[str, Drive], batch: int, length: int, peaks: Peaks) -> list[Row]:
    """A row for each variant: one forward pass of `batch` prompts of `length` tokens into an empty cache."""
    prompts = tokens(batch, length, plain.config.vocab_size).to(plain.device)
    rounds = LARGE_ROUNDS if batch * length >= LARGE else PREFILL_ROUNDS
    _reset(driven)
    times = prefill_in_turns(driven, prompts, rounds, warm_up=1)
    return list(_rows(plain, driven, times, "prefill", peaks, {"batch": batch, "length": length}))


def decode(
    plain: LlamaForCausalLM, driven: Mapping[str, Drive], batch: int, prompt: int, steps: int, peaks: Peaks
) -> list[Row]:
    """A row for each variant: one more token for each of `batch` rows after `prompt` tokens."""
    ids = tokens(batch, prompt + steps, plain.config.vocab_size).to(plain.device)
    times = decode_in_turns(driven, ids, prompt)
    return list(_rows(plain, driven, times, "decode", peaks, {"batch": batch, "prompt": prompt}))


def _rows(
    plain: LlamaForCausalLM,
    driven: Mapping[str, Drive],
    times: Mapping[str, Sequence[float]],
    phase: Any,
    peaks: Peaks,
    at: Row,
) -> Iterator[Row]:
    hidden = plain.config.hidden_size
    for name, drive in driven.items():
        is_plain = drive.ledger is None
        work = counted(driven["dense"] if is_plain else drive, phase, hidden, dense=is_plain)
        row = at | {"variant": name, "seconds": statistics.median(times[name])} | _against(work, times[name], peaks)
        if drive.ledger is not None:
            row["speedup"] = ratio(times["plain"], times[name])
            row["net"] = drive.ledger.report()[phase]["net"]
        yield row


def _against(work: Counted, taken_s: Sequence[float], peaks: Peaks) -> Row:
    floor_s = peaks.floor_s(work)
    bound = "products" if work.flops / peaks.flops_per_s >= floor_s else "memory"
    share = floor_s / statistics.median(taken_s)
    return {"flops": work.flops, "read_bytes": work.read_bytes, "bound": bound, "roofline": share}


def static_decode(plain: LlamaForCausalLM, batch: int, prompt: int, steps: int, rounds: int = 3) -> Row:
    """A step of Hugging Face's own `generate` with a static cache, which it compiles on a GPU.

    The time of a short generation is subtracted from that of one with `steps` more tokens. The time includes the greedy
    choice of tokens.
    """
    ids = tokens(batch, prompt, plain.config.vocab_size).to(plain.device)

    cache = StaticCache(config=plain.config, max_cache_len=prompt + _FIRST_STEPS + steps)

    def generate(new: int) -> None:
        cache.reset()  # all generations share a cache, because a captured graph holds its addresses
        plain.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            past_key_values=cache,
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
            pad_token_id=0,
        )

    lengths = {"short": _FIRST_STEPS, "long": _FIRST_STEPS + steps}
    with torch.no_grad():
        taken = in_turns(
            {name: lambda new=new: generate(new) for name, new in lengths.items()},
            rounds,
            warm_up=1,
            device=plain.device,
        )
    step_s = statistics.median(
        (long_s - short_s) / steps for short_s, long_s in zip(taken["short"], taken["long"], strict=True)
    )
    return {"batch": batch, "prompt": prompt, "seconds": step_s, "compiled": plain.device.type == "cuda"}


def _reset(driven: Mapping[str, Drive]) -> None:
    for drive in driven.values():
        if drive.ledger is not None:
            drive.ledger.reset()
