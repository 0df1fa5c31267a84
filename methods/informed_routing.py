r"""Informed Routing: a token that skips a branch gets a cheap forecast of the branch's output instead of nothing.

Idea: what matters is not how important a branch is to a token but how well its output can be forecast. First, a small
network per branch learns to forecast the output; then a router per branch learns, with one target for all, for which
tokens the forecast is good enough. `substitute=none` leaves the forecast out, which is SkipGPT with this router: the
ablation of the idea.

Paper: "Informed Routing in LLMs: Smarter Token-Level Computation for Faster Inference",
    https://arxiv.org/abs/2510.13831.
Equations: $h' = h + e f(x) + (1 - e) g(x)$, $g(x) = W_2 \, \mathrm{SiLU}(W_1 x)$ of rank 100, $x$ the pre-normed state,
    $e = 1$ where the execute logit is not below the skip logit. Stage 1, with everything executed: the sum over
    branches of $\mathrm{SmoothL1}(g(x), f(x))$. Stage 2, with $\bar e$ the mean executed share, $m = 1 - e$ and, for a
    branch $b$, $c_b = \frac{\sum_t m (1 - \cos(h, h + f))}{\sum_t m + 1}$:
    $\mathrm{CE} + 8 \, | (1 - s) - \bar e | + 0.1 \, \mathrm{mean}_l \sum_b c_b$; hard Gumbel-Softmax,
    temperature 5 -> 1 linearly. K,V of skipped tokens are computed.

Where paper and code differ, this follows the paper's idea: the released router scripts pass a flag that drops the
forecast, and their evaluation samples; here the forecast is used and the larger logit decides. Routers are those of the
code, H -> H/4 - 200 -> 2 with a ReLU, but at least 16 wide (the rule gives no width at H <= 800), and read the
pre-normed state (its `--post_norm_router`).

Deviations: both stages are one training, the first `forecast_share` of its steps and the rest (paper: 2000 and 2000);
the LoRA stage after them is not included. The similarity term uses the forecast in place of f, which is unknown if a
token skipped, and its gradient reaches the router through m alone. The model starts from the fine-tuned dense one,
routers start biased towards execute (+5), and over stage 2 the target falls from 1 to 1 - s on the schedule all methods
share. Padding is excluded from every mean. The dial, an offset on the execute logit at inference, is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from adaptive_bench.method import (
    EXECUTE_ALL,
    Backbone,
    Decision,
    ForwardCall,
    MethodConfig,
    SearchRange,
    Semantics,
    SiteView,
    initialised_linear,
)

from .branch_routers import BranchRouters, BranchRoutersConfig, two_layer_router

FORECASTER_STD = 1e-3
_SMALLEST_ROUTER = 16


class InformedRoutingConfig(BranchRoutersConfig):
    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "penalty_weight": SearchRange.parse("log:0.8:80", source="a decade around the released code's 8"),
        "forecast_share": SearchRange.parse("linear:0.1:0.5", source="our guess; released code 2000 of 4000 steps"),
    }
    penalty_weight: float = Field(8.0, ge=0, description="weight of the distance to the target (released code)")
    similarity_weight: float = Field(0.1, ge=0, description="weight of the similarity term, w (released code)")
    substitute: Literal["forecast", "none"] = Field("forecast", description="what a token gets for a skipped branch")
    rank: int = Field(100, ge=1, description="inner width of a forecaster (released code)")
    forecast_share: float = Field(
        0.25, gt=0, lt=1, description="share of the training steps that train the forecasters (released code: half)"
    )


class InformedRouting(BranchRouters):
    """Routes branches by how well their output can be forecast; the dial is an offset on the execute logit."""

    supports_data_parallel = True
    Config: ClassVar[type[MethodConfig]] = InformedRoutingConfig
    wants_layer_states = True
    config: InformedRoutingConfig

    def __init__(self, config: InformedRoutingConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers, hidden = self.backbone_size
        count = 2 * layers if config.substitute == "forecast" else 0
        self.forecasters = nn.ModuleList(_forecaster(hidden, config.rank) for _ in range(count))

    def new_router(self, hidden: int) -> nn.Module:
        """A router as wide as in the released code, but at least 16 wide."""
        return two_layer_router(hidden, max(_SMALLEST_ROUTER, hidden // 4 - 200))

    @property
    def forecasts(self) -> bool:
        """Whether the current step belongs to stage 1."""
        return self.step <= self._forecast_steps

    @property
    def routing_step(self) -> tuple[int, int]:
        """The current step and the number of steps of stage 2."""
        return self.step - self._forecast_steps, self.total_steps - self._forecast_steps

    @property
    def _forecast_steps(self) -> int:
        return max(1, round(self.config.forecast_share * self.total_steps)) if self.forecasters else 0

    def decide(self, view: SiteView) -> Decision:
        """In stage 1 every token executes; afterwards routers decide, and tokens that skip get the forecast."""
        if view.call.training and self.forecasts:
            self.pass_over(view)
            return EXECUTE_ALL
        decision = super().decide(view)
        if decision is EXECUTE_ALL or not self.forecasters:
            return decision
        if not view.call.training:
            return replace(decision, otherwise=lambda tokens: self._forecast(view, tokens))
        assert decision.scale is not None
        # In training every token runs the branch and is forecast; e, 0 or 1, weighs the two.
        skips = 1.0 - decision.scale.flatten(0, 1)
        return replace(decision, otherwise=lambda tokens: self._weighed(view, tokens, skips.index_select(0, tokens)))

    def pass_over(self, view: SiteView) -> None:
        """In stage 1, notes the states before every branch; their differences are what the branches added."""
        if view.call.training and self.forecasts:
            view.record(before=view.hidden.detach(), read=view.normed.detach())

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """The forecasters' error in stage 1; the distance to the target and the similarity term in stage 2."""
        if self.forecasts:
            return {"forecast": (1.0, self._errors(call).sum())}
        if not self.forecasters:
            return super().losses(call)
        layers = self.backbone_size[0]
        # Each branch's sums over tokens: of (1 - cos) where it skips, and of skips.
        turns = [call.whole(turned).sum(dim=0) for turned in call.records["turned"]]
        similarity = torch.stack([turned / (skipped + 1.0) for turned, skipped in turns]).sum() / layers
        return {**super().losses(call), "similarity": (self.config.similarity_weight, similarity)}

    def main_loss_weight(self, call: ForwardCall) -> float:
        """0 in stage 1, which has no cross entropy, else 1."""
        return 0.0 if self.forecasts else 1.0

    def _errors(self, call: ForwardCall) -> Tensor:
        """Mean SmoothL1 distance between each branch's forecast and what the branch added, [branches not spared]."""
        assert call.layer_states is not None
        before = call.records["before"]
        # What follows an attention is its MLP's input; what follows an MLP is the layer's output.
        after = [state.detach() for pair in zip(before[1::2], call.layer_states, strict=True) for state in pair]
        errors = []
        spared = {site.number for site in self.spared}
        for number, forecaster in enumerate(self.forecasters):
            if number in spared:
                continue
            wanted = call.of_real(after[number] - before[number]).float()
            found = forecaster(call.of_real(call.records["read"][number]).float())
            errors.append(call.whole(functional.smooth_l1_loss(found, wanted, reduction="none").mean(dim=-1)).mean())
        return torch.stack(errors)

    def _forecast(self, view: SiteView, tokens: Tensor) -> Tensor:
        """Forecasts [N, H] of the branch's output, without gradients: forecasters are frozen after stage 1."""
        forecaster = self.forecasters[view.site.number]
        # Only the weights are cut from the graph: through the inputs gradients reach the routers of earlier branches.
        resting = {name: value.detach() for name, value in forecaster.named_parameters()}
        output: Tensor = functional_call(forecaster, resting, (view.normed_at(tokens).float(),))
        return output

    def _weighed(self, view: SiteView, tokens: Tensor, skips: Tensor) -> Tensor:
        """Forecasts times 1 - e [N, 1], which is 0 or 1; records by how much (1 - cos) forecasts turn the states."""
        forecast = self._forecast(view, tokens)
        with torch.no_grad():
            states = view.hidden.flatten(0, 1).index_select(0, tokens).float()
            turned = 1.0 - functional.cosine_similarity(states, states + forecast, dim=-1)
        view.record(turned=torch.cat([skips * turned[:, None], skips], dim=-1))
        return skips * forecast


def _forecaster(hidden: int, rank: int) -> nn.Module:
    """H -> rank -> H with a SiLU, whose output starts close to 0."""
    maps = (initialised_linear(*sizes, std=FORECASTER_STD, bias=0.0) for sizes in ((hidden, rank), (rank, hidden)))
    return nn.Sequential(next(maps), nn.SiLU(), next(maps))
