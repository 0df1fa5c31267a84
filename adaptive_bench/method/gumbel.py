"""A choice of two that is sampled in training: hard forward, with the gradient of a soft one (Gumbel-Softmax).

What methods with a router of two logits share. "Categorical Reparameterization with Gumbel-Softmax",
https://arxiv.org/abs/1611.01144.
"""

from __future__ import annotations

import torch
from torch import Tensor

from adaptive_bench.method.base import Method
from adaptive_bench.method.randomness import draw_key, uniform_from
from adaptive_bench.method.site_view import SiteView


def sampled_choice(
    method: Method,
    view: SiteView,
    logits: Tensor,
    *,
    chosen: int,
    temperature: float,
    place: int,
    counters: Tensor | None = None,
) -> Tensor:
    """Whether side `chosen` of the logits [B, S, 2] wins with noise added: exactly 0 or 1, [B, S].

    Args:
        temperature: Of the soft choice whose gradient it has.
        place: Number of whoever chooses, apart from all others of the call.
        counters: What the noise is drawn from, of the shape of the choices; by default those of the tokens.
    """
    counters = view.call.draw_counters if counters is None else counters
    soft = ((logits + _noise(method, counters, place)) / temperature).softmax(dim=-1)[..., chosen]
    return (soft > 0.5).to(soft) + (soft - soft.detach())


def _noise(method: Method, counters: Tensor, place: int) -> Tensor:
    """Gumbel noise [*, 2] that depends on counters [*] (document and text), seed, step and place alone."""
    noise = [uniform_from(counters, draw_key(method.seed, method.step, 2 * place + side)) for side in range(2)]
    return -(-torch.stack(noise, dim=-1).clamp(1e-12, 1 - 1e-12).log()).log().float()
