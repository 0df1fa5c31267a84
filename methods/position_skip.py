"""Skipping by position: which tokens skip hangs on where they stand, and on nothing that they say. The floor of a loss.

Idea: a model that is trained with a pattern of skipping may get used to it, and lose when the pattern is exchanged,
whoever made it. What a method loses with the decisions of other tokens is therefore no proof that its choice of tokens
is a good one. Here nothing is chosen: the pattern is fixed before any text is read, the same in every document,
training step, seed and batch. With `trained` the model is trained with it, on the schedule of all methods, and what it
loses with other tokens' decisions is what habit alone can cost.

Equations: at site s the token at position t skips where frac(1/2 + t (sqrt(5) - 1)/2 + s (sqrt(2) - 1)) < q, both
counted from 0. Multiples of the golden ratio fill [0, 1) as evenly as any sequence can, so that of any run of tokens
close to a share q skips at every site, and of the sites of one token close to a share q is skipped.

Source: sequences of multiples of an irrational number (Weyl; Kuipers and Niederreiter, Uniform Distribution of
Sequences, 1974, chapter 2.3). Deviations: none; parameters, training and what skipping means are those of
`random_skip`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from adaptive_bench.method import (
    EXECUTE_ALL,
    Decision,
    DialSpec,
    ForwardCall,
    KVPolicy,
    Method,
    MethodConfig,
    MethodSpec,
)

_OF_POSITION = (math.sqrt(5) - 1) / 2
_OF_SITE = math.sqrt(2) - 1
_START = 0.5  # so that the first token of a text is not the first one to skip


class PositionSkipConfig(MethodConfig):
    """Parameters of skipping by position."""

    trained: bool = Field(False, description="skip in training as well, on the schedule of all methods")
    share_end: float | None = Field(
        None, ge=0, le=1, description="skip share at the end of training; default: the run's target saving"
    )
    kv: Literal["recompute", "copy_below", "evict"] = Field(
        "recompute", description="what skipped tokens leave in the cache"
    )


class PositionSkip(Method):
    """Skips at a share q of the positions, the dial."""

    supports_data_parallel = True
    Config: ClassVar[type[MethodConfig]] = PositionSkipConfig
    config: PositionSkipConfig

    @property
    def dial(self) -> DialSpec:
        """Share of the positions."""
        return DialSpec("skip_share", 0.0, 1.0, 0.0)

    @property
    def kv_policy(self) -> KVPolicy:
        """As configured; training sees identity skipping with K,V intact."""
        return "recompute" if self.training else self.config.kv

    @property
    def skip_share(self) -> float:
        """The dial; while training the schedule, or nothing if untrained."""
        if not self.training:
            return self.value
        share_end = self.target if self.config.share_end is None else self.config.share_end
        return self.annealed(0.0, share_end) if self.config.trained else 0.0

    def dial_for(self, saved_tokens: float) -> float:
        """The share itself."""
        return saved_tokens

    def decide_ahead(self, call: ForwardCall) -> Sequence[Decision]:
        """Skip where the number of site and position is below q: no hidden state and no word has a say."""
        share, sites = self.skip_share, 2 * self.backbone_size[0]
        if share <= 0.0:
            return [EXECUTE_ALL] * sites
        return [Decision(keep=keep) for keep in pattern(call.positions, sites) >= share]

    @classmethod
    def takes_target(cls, config: MethodConfig) -> bool:
        """The share rises to the target."""
        assert isinstance(config, PositionSkipConfig)
        return config.trained and config.share_end is None

    @classmethod
    def training_spec(cls, config: MethodConfig, spec: MethodSpec) -> MethodSpec:
        """Untrained: the dense model. Trained: the schedule alone matters, not semantics or KV policy."""
        assert isinstance(config, PositionSkipConfig)
        if not config.trained:
            return MethodSpec("dense")
        return MethodSpec(spec.name, tuple((key, value) for key, value in spec.params if key != "kv"))


def pattern(positions: Tensor, sites: int) -> Tensor:
    """The number in [0, 1) of every site and position: whoever has a small one skips first.

    Args:
        positions: [B, S], whole numbers.

    Returns:
        [sites, B, S].
    """
    offsets = torch.arange(sites, device=positions.device, dtype=torch.float64) * _OF_SITE + _START
    along = positions.to(torch.float64) * _OF_POSITION
    return torch.frac(along + offsets.view(-1, *[1] * positions.dim()))
