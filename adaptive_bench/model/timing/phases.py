"""The two phases that are timed: prefill, one forward of a batch of prompts, and decode, one more token per row.

All variants read the same given tokens: nothing is sampled, so that a method is not timed on a text of its own. Both
phases keep a cache and compute the logits of the last position only, as generation does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from adaptive_bench.engine.ledger import Ledger
from adaptive_bench.model.adaptive_model import AdaptiveModel
from adaptive_bench.model.static_decode import StaticSteps
from adaptive_bench.model.timing.clock import in_turns

_WARM_UP_STEPS = 3


@dataclass(frozen=True)
class Drive:
    """How one variant is driven.

    Attributes:
        new_cache: Makes an empty cache for B rows and as many tokens each: `new_cache(batch, tokens)`.
        forward: Runs token ids [B, S] behind what the cache holds.
        ledger: The variant's own books; `None` for the plain model.
        steps: Makes static steps for B rows and as many tokens each, with the variant's dial and books: `steps(batch,
            tokens)`; `None` for the plain model.
    """

    new_cache: Callable[[int, int], Any]
    forward: Callable[[Tensor, Any], object]
    ledger: Ledger | None = None
    steps: Callable[[int, int], StaticSteps] | None = None


def drive_plain(model: PreTrainedModel) -> Drive:
    """Plain Hugging Face with the cache it makes itself."""

    def forward(ids: Tensor, cache: DynamicCache) -> object:
        return model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)

    return Drive(lambda batch, tokens: DynamicCache(config=model.config), forward)


def drive_adaptive(model: AdaptiveModel, dial: float) -> Drive:
    """A method at one dial value; several dial values of the same model may be driven in turn."""
    dial, ledger = model.method.dial.check(dial), Ledger(model.backbone.costs)

    def forward(ids: Tensor, cache: Any) -> object:
        model.method.value, model.ledger = dial, ledger
        return model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)

    def steps(batch: int, tokens: int) -> StaticSteps:
        model.method.value, model.ledger = dial, ledger
        return StaticSteps(model, rows=batch, capacity=tokens)

    return Drive(model.new_cache, forward, ledger, steps)


@torch.no_grad()
def prefill_in_turns(
    drives: Mapping[str, Drive], prompts: Tensor, rounds: int, *, room: int = 0, warm_up: int = 2
) -> dict[str, list[float]]:
    """Seconds of one forward of the prompts [B, S] into an empty cache, one entry a round.

    Args:
        room: New tokens the cache has to have room for besides.
    """
    tokens = prompts.shape[1] + room

    def once(drive: Drive) -> Callable[[], object]:
        return lambda: drive.forward(prompts, drive.new_cache(len(prompts), tokens))

    calls = {name: once(drive) for name, drive in drives.items()}
    return in_turns(calls, rounds, warm_up=warm_up, device=prompts.device)


@torch.no_grad()
def decode_in_turns(drives: Mapping[str, Drive], tokens: Tensor, prompt: int) -> dict[str, list[float]]:
    """Seconds of each decoding step, one entry per new token; afterwards every ledger holds one prompt with its new
    tokens and nothing else.

    Args:
        tokens: [B, prompt + new].
        prompt: How many of them are there before the first step.
    """
    new = tokens.shape[1] - prompt
    warm = min(new, _WARM_UP_STEPS)
    in_turns(steps_of(drives, tokens[:, : prompt + warm], prompt), warm, warm_up=0, device=tokens.device)
    return in_turns(steps_of(drives, tokens, prompt), new, warm_up=0, device=tokens.device)


@torch.no_grad()
def pass_once(drive: Drive, tokens: Tensor, prompt: int) -> None:
    """The prompt and then the new tokens, one by one."""
    for _ in _forwards(drive, tokens, prompt):
        pass


def steps_of(drives: Mapping[str, Drive], tokens: Tensor, prompt: int) -> dict[str, Callable[[], object]]:
    """For each variant, what takes its next step when called; the prompts are done.

    Args:
        tokens: [B, prompt + new].
        prompt: How many of them are there before the first step.
    """
    iterators = {}
    for name, drive in drives.items():
        if drive.ledger is not None:
            drive.ledger.reset()
        iterators[name] = _forwards(drive, tokens, prompt)
        next(iterators[name])
    return {name: iterator.__next__ for name, iterator in iterators.items()}


def _forwards(drive: Drive, tokens: Tensor, prompt: int) -> Iterator[None]:
    cache = drive.new_cache(*tokens.shape)
    drive.forward(tokens[:, :prompt], cache)
    yield
    for place in range(prompt, tokens.shape[1]):
        drive.forward(tokens[:, place : place + 1], cache)
        yield
