"""What tokens that skip get instead: their state, scaled as the branch would have scaled it on average.

A residual stream grows and turns from layer to layer; a token that skips stays behind. The least that can be given
instead is a factor for each site, fitted to held-out text once: no decision, no parameters that are trained. Whatever
richer thing a method gives has to beat it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from adaptive_bench.method.decisions import Decision
from adaptive_bench.method.fitted import Fitted, HeldOutText
from adaptive_bench.method.site_view import SiteView

Compensation = Literal["none", "scale"]


def site_scales(text: HeldOutText) -> Tensor:
    """[sites] the least-squares scale of each site's input that comes closest to its output, s = sum <h, h'> / sum
    <h, h>; 1 where the input is 0.
    """
    sums: list[Tensor] = []
    for states, *_ in text.streams():
        pairs = [(one.double(), other.double()) for one, other in pairwise(states)]
        sums.append(torch.stack([torch.stack([(h * out).sum(), h.square().sum()]) for h, out in pairs]).cpu())
    products, squares = torch.stack(sums).sum(dim=0).T
    return torch.where(squares > 0, products / squares.where(squares > 0, 1.0), 1.0)


def compensated(view: SiteView, decision: Decision, fitted: Fitted) -> Decision:
    """The decision, with (s - 1) h for tokens that skip, so that they go on with s h; training is left as it is.

    Args:
        fitted: Holds `scales` [sites], as `site_scales` gives them.
    """
    if decision.keep is None or view.call.training:
        return decision
    site = view.site.layer if view.site.branch == "layer" else view.site.number
    # Looked up when somebody skips: nobody does while the scales are being fitted.
    return replace(decision, otherwise=lambda tokens: view.rescaled(fitted["scales"][site], tokens))
