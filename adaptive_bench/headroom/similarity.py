"""EAS, the "intrinsic suitability" of a backbone for early exits (arXiv 2603.23701): a ranking of backbones, no bound.

EAS = mean over l = 1 .. L of S_l^alpha w_l^(1 - alpha), with w_l = (L - l) / L the share of layers that an exit after l
leaves out, and S_l the cosine of the residual stream after layer l with that after the last one, averaged over tokens
and cut at 0. The paper's alpha is not known; 1/2 is the headline here, with the curve beside it. A model that could
leave anywhere has less than 1, and the cosine is high in every residual stream whatever the logits do.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

ALPHAS = (0.25, 0.5, 0.75)


def suitability(similarities: Sequence[float], alpha: float = 0.5) -> float:
    """EAS of similarities [L], the last layer's with itself included (its weight is 0)."""
    layers = len(similarities)
    parts = [
        max(0.0, similarity) ** alpha * ((layers - number) / layers) ** (1 - alpha)
        for number, similarity in enumerate(similarities, 1)
    ]
    return sum(parts) / layers


def cosines(states: Sequence[Tensor]) -> Tensor:
    """Cosine [L, N] of the residual stream [N, H] after each of L layers with that after the last."""
    last = states[-1].float()
    return torch.stack([functional.cosine_similarity(state.float(), last, dim=-1) for state in states])
