"""Who is confident enough to leave early: the one measure behind all early-exit methods."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from adaptive_bench.method.site_view import SiteView


def leaving_tokens(
    view: SiteView, candidates: Tensor, previous: Tensor | None, passes: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Candidates [B, S] whose confidence passes.

    Args:
        candidates: Boolean [B, S].
        previous: Residual stream [B, S, H] one layer below: confidence is the cosine with it. `None`: confidence is the
            gap between the two likeliest tokens, and the probe of a token that leaves is its final answer.
        passes: Given confidences [N] and flat token indices [N], says who leaves.
    """
    tokens = candidates.flatten().nonzero()[:, 0]
    leaving = torch.zeros_like(candidates).flatten()
    if not tokens.numel():
        return leaving.view_as(candidates)
    if previous is None:
        logits = view.probe(tokens)
        top = logits.float().softmax(dim=-1).topk(2, dim=-1).values
        sure = passes(top[:, 0] - top[:, 1], tokens)
        view.answer(tokens[sure], logits[sure])
    else:
        now, before = (states.flatten(0, 1)[tokens].float() for states in (view.hidden, previous))
        sure = passes(functional.cosine_similarity(now, before, dim=-1), tokens)
    leaving[tokens[sure]] = True
    return leaving.view_as(candidates)
