"""The ideal that no draft by early exit reaches: every token is drafted by its own first exit, known in advance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from adaptive_bench.headroom.exits import first_exits, predictions
from adaptive_bench.headroom.speculation import fewest_passes_per_token, passes_per_token
from adaptive_bench.model import AdaptiveModel


@torch.no_grad()
def ideal(
    model: AdaptiveModel, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]], drafts: int
) -> dict[str, Any]:
    """Layer passes a token over texts that were written greedily; all of L for plain decoding.

    The first token of a text comes from reading its prompt and is not counted.

    Returns:
        `layers`, `tokens`, `mean_first_exit`, and passes a token: `best`, with the best number of drafts in every
        round, and `fixed`, with `drafts` in each. `None` in place of the last three where there are no tokens.
    """
    exits = [
        exits_of(model, [*prompt, text[0]], text[1:])
        for prompt, text in zip(prompts, texts, strict=True)
        if len(text) > 1
    ]
    layers, tokens = model.backbone.num_layers, sum(map(len, exits))

    def mean(passes: Sequence[float]) -> float | None:
        return sum(each * len(one) for each, one in zip(passes, exits, strict=True)) / tokens if tokens else None

    return {
        "layers": layers,
        "tokens": tokens,
        "mean_first_exit": mean([sum(one) / len(one) for one in exits]),
        "best": mean([fewest_passes_per_token(one, layers) for one in exits]),
        "fixed": mean([passes_per_token(one, layers, drafts) for one in exits]),
    }


def exits_of(model: AdaptiveModel, prompt: Sequence[int], text: Sequence[int]) -> list[int]:
    """After how many layers head and final norm would first predict each token of a text; all L where none does."""
    ids = torch.tensor([[*prompt, *text[:-1]]], device=model.device)
    output = model(ids, output_hidden_states=True, logits_to_keep=len(text))
    start = len(prompt) - 1
    inner = predictions(model.backbone, [state[0, start:] for state in output.hidden_states[1:-1]])
    predicted = torch.cat([inner, output.logits.float().argmax(dim=-1)])
    return [int(exit_) for exit_ in first_exits(predicted, torch.tensor(list(text), device=ids.device))]
