r"""SkipLayer: a binary router per layer lets each token execute the layer or pass through unchanged.

Idea: a linear router reads the layer's normed input and outputs two logits, skip and execute. Training samples the
choice with a straight-through Gumbel-Softmax and pulls each layer's executed share towards a density; inference takes
the larger logit.

Paper: "Learning to Skip for Language Modeling", https://arxiv.org/abs/2311.15436.
Equations: $h' = h + z f(h)$, $z = 1$ where execute wins (hard forward, soft backward); loss
$\mathrm{CE} + 0.1 \sum_l (r_l - P)^2$ with $r_l$ the executed share of layer $l$, summed over layers, not averaged. K,V
of skipped tokens are computed.

`start=middle_closed` starts as LayerRoute does (arXiv 2606.01838): of 24 layers, the routers of the first 8 and the
last 7 lean towards execute (+1) and those of the 9 in between towards skip (-1), so that training has to open them.
LayerRoute's other parts (one logit per layer, a linear penalty, LoRA on a frozen backbone) are not included.

Deviations: a pretrained model is fine-tuned, whereas the paper trains from scratch. So the router has a bias, which
starts towards execute (+5), and the target density P anneals linearly from 1 to `density` (default: set by the run's
target saving, the same for all methods). The dial, an offset on the execute logit at inference, is ours, and it makes
up for what training leaves to do: in the preset `nano`, layers execute ten points more than P in the last 40 steps, in
the root mean square. There is no released code: weight and input are those of an independent reproduction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from adaptive_bench.method import (
    Backbone,
    Decision,
    ForwardCall,
    InitialChange,
    LogitRouter,
    MethodConfig,
    SearchRange,
    Semantics,
    SiteView,
    initialised_linear,
)

ROUTER_STD, EXECUTE_BIAS = 0.01, 5.0
LAYER_ROUTE_BIAS = 1.0
EXECUTE = 1  # index of the execute logit; skip is 0


class SkipLayerConfig(MethodConfig):
    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "density_weight": SearchRange.parse("log:0.01:1", source="a decade around the paper's 0.1"),
        "temperature": SearchRange.parse("log:0.3:3", source="our guess around the default"),
    }
    target_parameter: ClassVar[str] = "density"
    density: float | None = Field(
        None,
        gt=0,
        le=1,
        description="executed share P aimed at by the end of training; default: set by the run's target saving",
    )
    density_weight: float = Field(0.1, ge=0, description="weight of the density loss (an independent reproduction's)")
    temperature: float = Field(1.0, gt=0, description="temperature of the Gumbel-Softmax")
    start: Literal["open", "middle_closed"] = Field(
        "open",
        description="what routers lean towards at first: execute, or skip in the middle layers (LayerRoute)",
    )

    def start_biases(self, layers: int) -> list[float]:
        """Bias of each layer's execute logit before training."""
        if self.start == "open":
            return [EXECUTE_BIAS] * layers
        closed = middle_layers(layers)
        return [-LAYER_ROUTE_BIAS if layer in closed else LAYER_ROUTE_BIAS for layer in range(layers)]


class SkipLayer(LogitRouter):
    """Routes whole layers; the dial is an offset on the execute logit."""

    supports_data_parallel = True
    trains_alike = True
    execute = EXECUTE
    Config: ClassVar[type[MethodConfig]] = SkipLayerConfig
    unit = "layer"
    solves_dial = True
    config: SkipLayerConfig

    def __init__(self, config: SkipLayerConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers, hidden = self.backbone_size
        self.routers = nn.ModuleList(initialised_linear(hidden, 2, std=ROUTER_STD, bias=0.0) for _ in range(layers))
        for router, bias in zip(self.routers, config.start_biases(layers), strict=True):
            nn.init.constant_(router.bias[EXECUTE : EXECUTE + 1], bias)  # type: ignore[index]

    def decide(self, view: SiteView) -> Decision:
        """Samples a hard choice with a soft gradient while training; takes the larger logit otherwise."""
        logits = self.routers[view.site.layer](view.normed.float())
        return self.route(view, logits, temperature=self.config.temperature, place=view.site.layer)

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """Squared distance between each layer's executed share and the target density, summed over layers."""
        target = self.annealed(1.0, self.config.density or 1.0 - self.target)
        shares = [call.whole(call.of_real(executed)).mean() for executed in call.records["executed"]]
        # A sum, as in the paper: each layer is held to P by itself, however many there are.
        return {"density": (self.config.density_weight, (torch.stack(shares) - target).square().sum())}

    @classmethod
    def initial_change(cls, config: SkipLayerConfig) -> InitialChange | None:
        """No change, unless routers start closed in the middle layers."""
        if config.start == "open":
            return None
        return InitialChange("middle layers lean towards skip, the others lightly to execute (LayerRoute)", 0.0, 0.6)


def middle_layers(layers: int) -> range:
    """LayerRoute's middle layers: all but the first 8 and last 7 of 24 layers, in proportion for other depths."""
    return range(round(layers * 8 / 24), layers - round(layers * 7 / 24))
