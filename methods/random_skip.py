r"""Random skipping: a token is dropped from a branch with a fixed probability. The control that any method must beat.

Idea: each (token, branch) pair draws independently, attention and MLP separately, prefill and decode alike. The draw is
counter-based: a 64-bit mix of (seed, document, prefix of the token, site) instead of a stream, so the same token of the
same document gets the same decision with or without a cache and in any batch, and later text cannot change it.
Documents draw independently of each other even if they share a template or worked examples. A call that names no
document (`model.generate`, `pipeline`, lm-eval's `hf` model) draws from the text alone, so texts that begin alike share
the draws of that beginning.

Source: the random-skipping baseline of GateSkip (https://arxiv.org/abs/2510.13876, section 4.2), which says "a fixed
fraction of tokens, uniformly at random". `trained=true` trains with GateSkip's schedule (skip share 0 -> 0.2), the fair
control: the paper's baseline never skipped in training.

`compensate=scale` does for skipped branches what `static_depth[compensate=scale]` does for layers.

Deviations: Bernoulli draws per token instead of an exact share per call, which a causal rule cannot guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from adaptive_bench.method import (
    EXECUTE_ALL,
    Backbone,
    Compensation,
    Decision,
    DialSpec,
    Fitted,
    ForwardCall,
    HeldOutText,
    KVPolicy,
    Method,
    MethodConfig,
    MethodSpec,
    Semantics,
    SiteView,
    compensated,
    draw_key,
    site_scales,
    uniforms_from,
)


class RandomSkipConfig(MethodConfig):
    target_parameter: ClassVar[str] = "share_end"
    trained: bool = Field(False, description="skip in training as well, on the schedule all methods share")
    share_end: float | None = Field(
        None, ge=0, le=1, description="skip share at the end of training; default: the run's target saving"
    )
    kv: Literal["recompute", "copy_below", "evict"] = Field(
        "recompute", description="what a token that skips attention leaves in the cache"
    )
    compensate: Compensation = Field(
        "none", description="what a token gets for a skipped branch: nothing, or its state times a fitted factor s"
    )


class RandomSkip(Method):
    """Skips with probability q; the dial is q."""

    supports_data_parallel = True
    adapts = False
    draws = True
    trains_alike = True
    at_inference = frozenset({"kv", "compensate"})
    Config: ClassVar[type[MethodConfig]] = RandomSkipConfig
    dial = DialSpec("skip_probability", 0.0, 1.0, 0.0)
    config: RandomSkipConfig

    def __init__(self, config: RandomSkipConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        if config.compensate == "scale":
            self.fitted = Fitted("scales")

    @property
    def kv_policy(self) -> KVPolicy:
        """As configured, but `recompute` in training, where skipped tokens keep their K,V."""
        return "recompute" if self.training else self.config.kv

    @property
    def skip_share(self) -> float:
        """The dial's value; in training, the share on the schedule, or 0 without `trained`."""
        if not self.training:
            return self.value
        share_end = self.target if self.config.share_end is None else self.config.share_end
        return self.annealed(0.0, share_end) if self.config.trained else 0.0

    def dial_for(self, saved_tokens: float) -> float:
        """The saving itself: the share of skipped token-branches is the probability."""
        return saved_tokens

    def decide_ahead(self, call: ForwardCall) -> Sequence[Decision]:
        """Keeps a token if its draw is at least q; hidden states play no part."""
        share, sites = self.skip_share, range(2 * self.backbone_size[0])
        if share <= 0.0:
            return [EXECUTE_ALL for _ in sites]
        # New draws in each training step; at inference a text gets the same ones in every call.
        round_of_training = self.step if self.training else 0
        # A token's draw depends on its text, not on its place in a batch.
        keys = [draw_key(self.seed, round_of_training, site) for site in sites]
        return [Decision(keep=keep) for keep in uniforms_from(call.draw_counters, keys) >= share]

    def decide(self, view: SiteView) -> Decision:
        """The decision drawn ahead, with the compensation that the state at this site gives."""
        decision = super().decide(view)
        return decision if self.fitted is None else compensated(view, decision, self.fitted)

    def fit(self, text: HeldOutText) -> None:
        assert self.fitted is not None
        self.fitted.set(scales=site_scales(text))

    @classmethod
    def takes_target(cls, config: RandomSkipConfig) -> bool:
        """Whether training raises the share to the run's target."""
        return config.trained and super().takes_target(config)

    @classmethod
    def training_spec(cls, config: RandomSkipConfig, spec: MethodSpec) -> MethodSpec:
        """Without `trained` the dense model's; else semantics, KV policy and compensation do not matter."""
        return super().training_spec(config, spec) if config.trained else MethodSpec("dense")
