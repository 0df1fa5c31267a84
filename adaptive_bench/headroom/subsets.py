"""The exact subset oracle of a small model: for a token the fewest layers whose prediction is the full model's.

All 2^L subsets of layers are run for one token each, on the dense K,V of the tokens before it. Nobody who saves FLOPs
has those, so this is a reference and not attainable: what choosing layers freely could do beside leaving early.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from adaptive_bench.headroom.texts import TaskText
from adaptive_bench.method import SiteView
from adaptive_bench.model.prescribed import prescribed_model

MOST_LAYERS = 10  # 1024 runs a token
_ROWS = 256


class TokenSubsets(NamedTuple):
    """One token.

    Attributes:
        kept: Layers of the smallest subset that gives the full model's prediction.
        preserving: [2^L] which subsets do; bit l of a subset's number stands for layer l.
    """

    kept: int
    preserving: Tensor


def smallest_subsets(
    backbone_model: PreTrainedModel, texts: Sequence[TaskText], tokens: int, seed: int
) -> Iterator[TokenSubsets]:
    """The oracle for randomly drawn positions that write, as many as asked for or there are."""
    places = [(text, place) for text in texts for place in range(len(text.prompt) - 1, len(text.read))]
    for text, place in random.Random(seed).sample(places, min(tokens, len(places))):
        yield token_subsets(backbone_model, torch.tensor(text.read[: place + 1], device=backbone_model.device))


@torch.no_grad()
def token_subsets(backbone_model: PreTrainedModel, tokens: Tensor) -> TokenSubsets:
    """The oracle for the last of the tokens [S] of a text."""
    model = prescribed_model(backbone_model)
    layers = model.backbone.num_layers
    cache = model.new_cache(1, len(tokens))
    if len(tokens) > 1:
        model(tokens[None, :-1], past_key_values=cache, use_cache=True, logits_to_keep=1)
    numbers = torch.arange(2**layers, device=tokens.device)
    chosen = []
    for some in numbers.split(_ROWS):

        def rule(view: SiteView, some: Tensor = some) -> Tensor:
            return ((some >> view.site.layer) & 1).bool()[:, None]

        model.method.rule = rule
        rows = torch.zeros_like(some)
        output = model(
            tokens[-1].expand(len(some), 1), past_key_values=cache.fork(rows), use_cache=True, logits_to_keep=1
        )
        chosen.append(output.logits[:, -1].float().argmax(dim=-1))
    predicted = torch.cat(chosen)
    preserving = (predicted == predicted[-1]).cpu()
    sizes = torch.stack([(numbers.cpu() >> layer) & 1 for layer in range(layers)]).sum(dim=0)
    return TokenSubsets(int(sizes[preserving].min()), preserving)
