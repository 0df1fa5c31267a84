r"""Skipping by position: which tokens skip depends on where they stand and on nothing they say. The floor of a loss.

Idea: a model that is trained with a skipping pattern gets used to it and loses quality if the pattern is replaced. Here
nothing is chosen: the pattern is the same in every document, training step, seed and batch. With `trained`, the model
is trained with the pattern on the schedule all methods share; what it then loses under other tokens' decisions is the
loss that habit alone causes.

Equations: at site $s$ the token at position $t$ skips where
$\mathrm{frac}(1/2 + t (\sqrt 5 - 1)/2 + s (\sqrt 2 - 1)) < q$, both counted from 0. Multiples of the golden ratio fill
[0, 1) as evenly as any sequence can. So about a share q of any run of tokens skips at every site, and every token skips
about a share q of the sites.

Source: sequences of multiples of an irrational number (Weyl; Kuipers and Niederreiter, Uniform Distribution of
Sequences, 1974, chapter 2.3).
Deviations: none; parameters, training and the meaning of skipping are those of `random_skip`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from adaptive_bench.method import EXECUTE_ALL, Decision, DialSpec, ForwardCall

from .random_skip import RandomSkip

_OF_POSITION = (math.sqrt(5) - 1) / 2
_OF_SITE = math.sqrt(2) - 1
_START = 0.5  # so that the first token of a text is not the first one to skip


class PositionSkip(RandomSkip):
    """Skips at a share q of the positions; the dial is q."""

    supports_data_parallel = True
    adapts = True
    draws = False
    dial = DialSpec("skip_share", 0.0, 1.0, 0.0)

    def decide_ahead(self, call: ForwardCall) -> Sequence[Decision]:
        """Skips if the number of the site and position is below q; hidden states and tokens play no part."""
        share, sites = self.skip_share, 2 * self.backbone_size[0]
        if share <= 0.0:
            return [EXECUTE_ALL] * sites
        return [Decision(keep=keep) for keep in pattern(call.positions, sites) >= share]


def pattern(positions: Tensor, sites: int) -> Tensor:
    """Numbers [sites, B, S] in [0, 1) for every site and the positions [B, S]; small numbers skip first."""
    offsets = torch.arange(sites, device=positions.device, dtype=torch.float64) * _OF_SITE + _START
    along = positions.to(torch.float64) * _OF_POSITION
    return torch.frac(along + offsets.view(-1, *[1] * positions.dim()))
