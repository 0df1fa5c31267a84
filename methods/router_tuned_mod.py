r"""Router-tuned Mixture-of-Depths (MindSkip): a frozen model learns only tiny routers on the attention of its deep
layers.

Idea: s = sigmoid(w z) with z the attention's normalised input; a token executes attention iff s >= 0.5, with a
straight-through gradient. Only the routers are trained, on a backbone that has already learned the answer template.

Paper: "Router-Tuning: A Simple and Effective Approach for Enabling Dynamic-Depth in Transformers",
    https://arxiv.org/abs/2410.13184.
Equations: $m = 1$ where $s \ge 0.5$, else 0; $h' = h + m f(h)$, $\partial h' / \partial s = f(h)$; regulariser per
    routed layer $\max(0, \mathrm{mean}(m) - c)$ with the capacity $c$, summed.
Routed: attention of the `layers` deepest layers except the very last. K,V are computed for all tokens.

Deviations: `bench` semantics decide per token, which is causal; `paper` semantics decide per sequence from the mean of
z over the prompt (their default, not causal), and for generated tokens one by one. The released code ships with the
regulariser off, which leaves the saving to chance; here it is on. Routers have a bias, which starts at "execute" (2) so
that the frozen model is intact at first. The dial, a threshold on s, is ours. "Released code" is that of April 2026
(commit 772c160): earlier versions decide once, for the prompt, and keep no K,V of prompts that skip.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from adaptive_bench.method import (
    EXECUTE_ALL,
    Backbone,
    Decision,
    DialSpec,
    ForwardCall,
    Method,
    MethodConfig,
    MethodSpec,
    SearchRange,
    Semantics,
    Site,
    SiteView,
    UsageError,
    initialised_linear,
)

ROUTER_STD, ROUTER_BIAS = 0.01, 2.0
_MIN_CAPACITY = 0.05  # used if the target saving exceeds what the routed layers can skip


class RouterTunedConfig(MethodConfig):
    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "layers": SearchRange.parse("int:1:16", source="paper 16 of 32; from 1 on (ours)"),
        "regulariser_weight": SearchRange.parse("log:0.01:10", source="our guess around the default; released code 0"),
    }
    target_parameter: ClassVar[str] = "capacity"
    layers: int = Field(
        0, ge=0, examples=[1], description="how many layers are routed, ending before the last one; 0: half (paper)"
    )
    capacity: float | None = Field(
        None,
        gt=0,
        le=1,
        description="executed share up to which the regulariser is 0; default: set by the run's target saving "
        "(paper: 0.5)",
    )
    regulariser_weight: float = Field(1.0, ge=0, description="weight of the regulariser (released code: 0)")

    def routed_layers(self, layers: int) -> int:
        """How many of a model's layers are routed."""
        return self.layers or layers // 2

    def on_model(self, layers: int) -> dict[str, Any]:
        return super().on_model(layers) | {"layers": self.routed_layers(layers)}


class RouterTunedMoD(Method):
    """Routes the attention of deep layers on a frozen backbone; the dial is the threshold on the router's sigmoid."""

    supports_data_parallel = True
    Config: ClassVar[type[MethodConfig]] = RouterTunedConfig
    solves_dial = True
    paper_class = "C1"  # one decision per prompt
    freezes_backbone = True
    dial = DialSpec("threshold", 0.0, 1.0, 0.0)
    config: RouterTunedConfig

    def __init__(self, config: RouterTunedConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers, hidden = self.backbone_size
        count = config.routed_layers(layers)
        if not 1 <= count < layers:
            raise UsageError(
                f"Router tuning routes 1 .. {layers - 1} of {layers} layers (never the last), got layers={count}. "
                "Lower it, or choose a deeper model."
            )
        self.routed = list(range(layers - 1 - count, layers - 1))
        self.routers = nn.ModuleDict(
            {str(layer): initialised_linear(hidden, 1, std=ROUTER_STD, bias=ROUTER_BIAS) for layer in self.routed}
        )

    @property
    def eligible_sites(self) -> frozenset[Site]:
        return frozenset(Site(layer, "attention") for layer in self.routed)

    def decide(self, view: SiteView) -> Decision:
        """Uses a straight-through mask while training and a hard mask otherwise."""
        name = str(view.site.layer)
        if view.site.branch != "attention" or name not in self.routers:
            return EXECUTE_ALL
        states = view.normed.float()
        if self.semantics == "paper" and view.call.phase == "prefill":
            # One decision per prompt: the router reads the mean of its states, [B, 1, H].
            weights = view.call.valid[..., None].to(states)
            states = (states * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True).clamp(min=1)
        score = torch.sigmoid(self.routers[name](states)).expand(*view.call.valid.shape, 1)
        if not view.call.training:
            return Decision(keep=score[..., 0] >= self.value)
        mask = (score >= 0.5).to(score) + (score - score.detach())  # exactly 0 or 1
        view.record(mask=mask[..., 0])
        return Decision(scale=mask)

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """By how much the executed share exceeds the capacity, summed over routed layers."""
        capacity = self.config.capacity or max(_MIN_CAPACITY, 1.0 - self.target / self.max_saved_tokens)
        excess = [(call.whole(call.of_real(mask)).mean() - capacity).clamp(min=0) for mask in call.records["mask"]]
        return {"capacity": (self.config.regulariser_weight, torch.stack(excess).sum())}

    @classmethod
    def starts_from(cls, spec: MethodSpec) -> MethodSpec | None:
        """Training starts from the fine-tuned dense model, which has learned the answer template."""
        return MethodSpec("dense")
