"""Measures what time a method takes and saves on a device, against the plain model.

All variants are called in turn, in rounds, so that other work of the machine affects them alike. They all read the same
given tokens: a method is not timed on text that it generated. Two phases are timed: prefill, one forward pass of a
batch of prompts, and decode, one more token per row. Both keep a cache and compute only the logits of the last
position, as generation does. The saving in time is 1 - t_method / t_plain. For a whole request it covers one prompt and
its new tokens: `total = prefill + new * decode`. The savings in tokens and FLOPs come from the ledger of the very calls
that were timed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from adaptive_bench.engine.ledger import Ledger
from adaptive_bench.model.adaptive_model import AdaptiveModel

_WARM_UP_STEPS = 3  # decode steps that are not counted


@dataclass(frozen=True)
class Quantiles:
    """A median with its quartiles, of `count` measurements."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Quantiles:
        """The quantiles of at least one value."""
        measured = list(values)
        low, median, high = np.quantile(measured, (0.25, 0.5, 0.75)).tolist()
        return cls(median, low, high, len(measured))


def in_turns(
    variants: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warm_up: int = 2,
    device: torch.device | str = "cpu",
) -> dict[str, list[float]]:
    """Seconds of each variant, one entry per round; entries of the same round belong together.

    Every round calls every variant once, in a new random order (from a fixed seed), so that no variant always follows
    the same neighbour. The first `warm_up` rounds do not count. A CUDA device is synchronized around each call.
    """
    wait = torch.cuda.synchronize if torch.device(device).type == "cuda" else lambda: None
    # A generator of its own: the global one belongs to the caller.
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
    """Plain time divided by our time, within each round."""
    return Quantiles.of(plain / ours for plain, ours in zip(plain_s, ours_s, strict=True))


@dataclass(frozen=True)
class Drive:
    """How one variant is driven."""

    new_cache: Callable[[int, int], Any]  # `new_cache(batch, tokens)`: empty, with room for so many rows and tokens
    forward: Callable[[Tensor, Any], object]  # runs token ids [B, S] after the tokens in the cache
    ledger: Ledger | None = None  # the variant's own; `None` for the plain model


def drive_plain(model: PreTrainedModel) -> Drive:
    """The plain Hugging Face model with its own cache."""

    def forward(ids: Tensor, cache: DynamicCache) -> object:
        return model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)

    return Drive(lambda batch, tokens: DynamicCache(config=model.config), forward)


def drive_adaptive(model: AdaptiveModel, dial: float) -> Drive:
    """A method at one dial value; several dial values of the same model may be driven in turn."""
    dial, ledger = model.method.dial.check(dial), Ledger(model.backbone.costs)

    def forward(ids: Tensor, cache: Any) -> object:
        # In each call, since variants of the same model take turns. `dial`'s setter would empty the ledger.
        model.method.value, model.ledger = dial, ledger
        return model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)

    return Drive(model.new_cache, forward, ledger)


@torch.no_grad()
def prefill_in_turns(
    drives: Mapping[str, Drive], prompts: Tensor, rounds: int, *, room: int = 0, warm_up: int = 2
) -> dict[str, list[float]]:
    """Seconds of one forward pass of prompts [B, S] into an empty cache with `room` spare slots, once per round."""
    tokens = prompts.shape[1] + room

    def once(drive: Drive) -> object:
        return drive.forward(prompts, drive.new_cache(len(prompts), tokens))

    variants = {name: partial(once, drive) for name, drive in drives.items()}
    return in_turns(variants, rounds, warm_up=warm_up, device=prompts.device)


@torch.no_grad()
def decode_in_turns(drives: Mapping[str, Drive], tokens: Tensor, prompt: int) -> dict[str, list[float]]:
    """Seconds of each decode step, one entry per new token. Afterwards every ledger holds exactly one pass over the
    prompts and their new tokens, [B, prompt + new].
    """
    new = tokens.shape[1] - prompt
    warm = min(new, _WARM_UP_STEPS)
    # A pass of its own for warming up: counted steps must begin at the first new token, with fresh ledgers.
    in_turns(steps_of(drives, tokens[:, : prompt + warm], prompt), warm, warm_up=0, device=tokens.device)
    return in_turns(steps_of(drives, tokens, prompt), new, warm_up=0, device=tokens.device)


def steps_of(drives: Mapping[str, Drive], tokens: Tensor, prompt: int) -> dict[str, Callable[[], object]]:
    """For each variant, a function that runs its next decode step; the prompts are already read."""
    iterators = {}
    for name, drive in drives.items():
        if drive.ledger is not None:
            drive.ledger.reset()
        iterators[name] = _forwards(drive, tokens, prompt)
        # Reads the prompt now, so that the first timed step is a decode step.
        next(iterators[name])
    return {name: iterator.__next__ for name, iterator in iterators.items()}


def _forwards(drive: Drive, tokens: Tensor, prompt: int) -> Iterator[None]:
    """The prompt and then the new tokens, one by one."""
    cache = drive.new_cache(*tokens.shape)
    drive.forward(tokens[:, :prompt], cache)
    yield
    for place in range(prompt, tokens.shape[1]):
        drive.forward(tokens[:, place : place + 1], cache)
        yield


def time_model(
    plain: PreTrainedModel, model: AdaptiveModel, savings: Sequence[float], tokens: Tensor, *, prompt: int, rounds: int
) -> dict[str, Any]:
    """Time a method at several shares of saved tokens, in turn with the plain model.

    Args:
        plain, model: In `eval()` mode; they may share the backbone. The dial and ledger of the model are changed.
        savings: Shares of saved tokens for which to set the dial, limited to the largest that the method can save.
        tokens: [B, prompt + new], read by every variant.
        rounds: Rounds of prefill; decoding has one round per new token.

    Returns:
        Plain values. `plain` and each of `points` have the latency of one batch of prompts (`prefill_s`) and of one
        more token for each row (`decode_s`), and the new tokens of the whole batch per second, including the prompts'
        time (`tokens_per_s`). A point also has:

        * `requested`: The share of saved tokens for which the `dial` was set, in its own unit.
        * `saved`: Measured shares `tokens`, `core`, `net`, `executed`, over prompt and new tokens.
        * `prefill_speedup`, `decode_speedup`: Plain time over ours, within the same round.
        * `saved_time`: The saved share of the plain model's time: in `prefill`, in `decode` and in `total`.
    """
    method = model.method
    reachable = sorted({round(min(saving, method.max_saving), 6) for saving in savings})
    dials = [method.checked_dial(saving) for saving in reachable]
    drives = {"plain": drive_plain(plain)}
    drives |= {f"{saving:g}": drive_adaptive(model, dial) for saving, dial in zip(reachable, dials, strict=True)}
    new = tokens.shape[1] - prompt
    # Decoding is second, as it resets the ledgers: reports cover one pass over the prompts and their new tokens.
    prefill = prefill_in_turns(drives, tokens[:, :prompt], rounds, room=new)
    decode = decode_in_turns(drives, tokens, prompt)
    reports = {name: drive.ledger.report() for name, drive in drives.items() if drive.ledger is not None}
    spreads = {name: (Quantiles.of(prefill[name]), Quantiles.of(decode[name])) for name in drives}
    total_s = {name: prompts.median + new * step.median for name, (prompts, step) in spreads.items()}
    measured: dict[str, dict[str, Any]] = {
        name: {
            "prefill_s": asdict(prompts),
            "decode_s": asdict(step),
            "tokens_per_s": len(tokens) * new / total_s[name],
        }
        for name, (prompts, step) in spreads.items()
    }
    weight = spreads["plain"][0].median / total_s["plain"]  # share of the prompts in the plain model's time
    points = []
    for name, saving, dial in zip(reports, reachable, dials, strict=True):
        # By rounds, so that what slows a whole round down cancels.
        faster = speedups(prefill["plain"], prefill[name]), speedups(decode["plain"], decode[name])
        read, written = (1 / one.median for one in faster)  # our time relative to plain time
        total = weight * read + (1 - weight) * written
        points.append(
            {
                "requested": saving,
                "dial": dial,
                "saved": {axis: reports[name]["saved"][axis] for axis in ("tokens", "core", "net", "executed")},
                "prefill_speedup": asdict(faster[0]),
                "decode_speedup": asdict(faster[1]),
                "saved_time": {"prefill": 1 - read, "decode": 1 - written, "total": 1 - total},
                **measured[name],
            }
        )
    return {"plain": measured["plain"], "points": points}
