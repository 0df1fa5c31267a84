r"""DASH: prompt tokens that attention no longer changes are halted at one layer and skip all layers above it.

Idea: while a prompt is processed, most tokens settle: what attention adds to them in some middle layer is small. These
are the ones to halt, which is the opposite of what early exit and importance scores keep. Nothing is trained and no
attention weights are needed, only the norm of an update that is computed anyway.

Paper: "Stability Implies Redundancy: Delta Attention Selective Halting for Efficient Long-Context Prefilling",
    https://arxiv.org/abs/2604.18103.
Equations: $\Delta_t = \| U_t \|_2$ with $U$ the output of layer $l_s$'s attention before it is added; of a prompt's
    $S$ tokens, the $K = \lfloor (1 - \rho) S \rfloor$ with the largest $\Delta$ stay active, and all others keep their
    state in the layers above $l_s$. Typical: $l_s = 0.4 L$, $\rho = 0.667$. Generated tokens run every layer.

Confirmed: the authors' page of their code says that one start layer scores tokens by the norm of the attention output
before the residual and that the top (1 - rho) are the active set, without training, in prefill. Not confirmed, because
neither paper nor code could be read: the figures above (from summaries); that halted tokens leave no keys and values in
the layers above (`evict`); that they run the MLP of layer l_s itself; what a batch or a chunked prompt does.

In `paper` semantics a prompt is ranked as a whole, which looks ahead (C1). In `bench` semantics a token is halted where
its $\Delta$ is below the rho-quantile of the prompts of held-out training text: a token's fate depends on itself and on
what precedes it.

Deviations: a prompt's last token, which predicts the first answer token, is always active and one of the K. A text
without a prompt is given a prompt of one token, so that nothing is halted. This method saves only in prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from adaptive_bench.method import (
    EXECUTE_ALL,
    Backbone,
    Decision,
    DialSpec,
    Fitted,
    HeldOutText,
    KVPolicy,
    Method,
    MethodConfig,
    MethodSpec,
    SearchRange,
    Semantics,
    Site,
    SiteView,
    UsageError,
    every_branch,
    top_k_per_row,
)

VERSION = 2  # in 1 the quantiles were of answers too
_BEFORE, _ACTIVE = "dash_before", "dash_active"
_QUANTILES = 201  # quantiles of the norms on held-out text, in steps of half a percent


class DashHaltingConfig(MethodConfig):
    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "start": SearchRange.parse("linear:0.1:0.8", source="around the typical 0.4 (a summary of the paper)"),
    }
    start: float = Field(
        0.4,
        ge=0,
        lt=1,
        examples=[0.6],
        description="depth of the layer l_s that scores tokens, as a share of all layers (a summary of the paper)",
    )


class DashHalting(Method):
    """Halts a share of each prompt's tokens; the dial is that share."""

    Config: ClassVar[type[MethodConfig]] = DashHaltingConfig
    spares = False
    paper_class = "C1"  # top-k over the prompt
    prompts_only = True
    solves_dial = True
    kv_policy: KVPolicy = "evict"
    dial = DialSpec("halted_share", 0.0, 1.0, 0.0)
    config: DashHaltingConfig
    fitted: Fitted

    def __init__(self, config: DashHaltingConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers = self.backbone_size[0]
        # 0.3 of 10 layers is 2.999... in floating point.
        self.start_layer = int(config.start * layers + 1e-9)
        if self.start_layer > layers - 2:
            raise UsageError(
                f"DASH halts tokens in the layers above the one that scores, got start={config.start:g}, which is "
                f"layer {self.start_layer} of {layers}, counted from 0. Lower start."
            )
        self.fitted = Fitted("norms")

    @property
    def eligible_sites(self) -> frozenset[Site]:
        return every_branch(range(self.start_layer + 1, self.backbone_size[0]))

    def fit(self, text: HeldOutText) -> None:
        """Measures quantiles of the norm of what attention adds in the start layer, over the tokens that may be halted:
        prompt tokens except the last. If the text has none of these, over all tokens.
        """
        site = Site(self.start_layer, "attention").number
        norms, ranked = [], []
        for states, ends, prompts in text.streams():
            norms.append(torch.linalg.vector_norm((states[site + 1] - states[site]).double(), dim=-1).cpu())
            # A prompt's last token is followed by no prompt token, or ends its text.
            ranked.append((prompts & prompts.roll(-1) & ~ends).cpu())
        found, may_halt = torch.cat(norms), torch.cat(ranked)
        shares = torch.linspace(0.0, 1.0, _QUANTILES, dtype=torch.float64)
        self.fitted.set(norms=torch.quantile(found[may_halt] if may_halt.any() else found, shares))

    def decide(self, view: SiteView) -> Decision:
        """Notes the stream before the start layer's attention, decides at its MLP, and applies that in layers above."""
        call, layer = view.call, view.site.layer
        if layer < self.start_layer or call.training or self.value == self.dial.skip_nothing or not call.reads_prompt:
            return EXECUTE_ALL
        if layer > self.start_layer:
            return Decision(keep=call.scratch[_ACTIVE])
        if view.site.branch == "attention":
            call.scratch[_BEFORE] = view.hidden
        else:
            call.scratch[_ACTIVE] = self._active(view, call.scratch.pop(_BEFORE))
        return EXECUTE_ALL

    def _active(self, view: SiteView, before: Tensor) -> Tensor:
        """Mask [B, S] of the tokens that are not halted; `before` is the residual stream before attention."""
        call = view.call
        # The prompt's last token writes the answer's first, so it is never halted.
        ranked = call.context & ~call.writing
        tokens = ranked.flatten().nonzero()[:, 0]
        norms = view.change(before, tokens)
        # Infinite for tokens that are not ranked: they stay, whatever the threshold.
        scores = norms.new_full((ranked.numel(),), torch.inf).index_copy(0, tokens, norms).view_as(ranked)
        if self.semantics == "paper":
            return top_k_per_row(scores, call.context, 1.0 - self.value) | ~call.context
        return scores >= self._threshold().to(scores)

    def _threshold(self) -> Tensor:
        """The norm below which a share rho of held-out prompt tokens lies."""
        quantiles = self.fitted["norms"].double()
        place = self.value * (_QUANTILES - 1)
        low = min(int(place), _QUANTILES - 2)
        return torch.lerp(quantiles[low], quantiles[low + 1], place - low)

    @classmethod
    def training_spec(cls, config: MethodConfig, spec: MethodSpec) -> MethodSpec:
        """The dense model's training: the method itself trains nothing."""
        return MethodSpec("dense")
