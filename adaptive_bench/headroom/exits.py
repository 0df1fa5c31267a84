"""How early each token could leave: from what the model would predict after every layer.

With a_l the prediction of the shared final norm and head after layer l (ties: the lowest id), and a_L the model's own:

* first   e = min {l : a_l = a_L}: inflated by luck on frequent tokens;
* stable  e = min {l : a_m = a_L for all m >= l}: known with hindsight;
* lucky   the first layer whose prediction is that of *another* token drawn at random: how small `first` is by chance.
"""

from __future__ import annotations

import torch
from torch import Tensor

from adaptive_bench.backbone import Backbone


def predictions(backbone: Backbone, states: list[Tensor]) -> Tensor:
    """The likeliest token after each layer, [L, N], of residual streams [N, H] after each of L layers."""
    return torch.stack([backbone.head(backbone.final_norm(state)).float().argmax(dim=-1) for state in states])


def first_exits(predicted: Tensor, target: Tensor | None = None) -> Tensor:
    """First exits [N] in 1 .. L of predictions [L, N].

    Args:
        target: Predictions [N] to be met instead of the last layer's; L where no layer meets them.
    """
    meets = predicted == (predicted[-1] if target is None else target)
    layers = len(predicted)
    first = meets.int().argmax(dim=0) + 1
    return torch.where(meets.any(dim=0), first, torch.full_like(first, layers))


def stable_exits(predicted: Tensor) -> Tensor:
    """Stable exits [N] in 1 .. L of predictions [L, N]."""
    meets = (predicted == predicted[-1]).int()
    kept = meets.flip(0).cumprod(dim=0).sum(dim=0)  # layers at the end that all agree
    return len(predicted) - kept + 1


def lucky_exits(predicted: Tensor, seed: int) -> Tensor:
    """First exits [N] towards the last prediction of another token, by a random shift among the N."""
    count = predicted.shape[1]
    if count < 2:
        return first_exits(predicted)
    return first_exits(predicted, predicted[-1][derangement(count, seed)])


def derangement(count: int, seed: int) -> Tensor:
    """A random order [count] of 2 numbers or more in which none stands in its own place."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    shifted = torch.empty_like(order)
    shifted[order] = order.roll(1)  # everybody's place goes to the next one of a random circle
    return shifted
