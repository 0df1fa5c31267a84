r"""FlexiDepth: on a frozen model, routers send each token through a layer or through a small adapter.

Idea: a router reads the layer's input. Above the threshold the token attends, and its MLP is scaled by the router's
gate g; below it, the token only leaves its keys and values and takes an adapter, scaled by 1 - g, in place of the MLP.
Both factors give the router its gradient; a penalty on the squared number of layers a token uses determines how many it
skips.

Paper: "Adaptive Layer-skipping in Pre-trained LLMs", https://arxiv.org/abs/2503.23798.
Equations: $g = \sigma(w U \tanh(\mathrm{RMSNorm}(D z)))$ with $z$ the layer's pre-normed input, $D$ from $H$ to $H/16$,
    $U$ back, $w$ from $H$ to 1, without biases; run iff $g > 0.5$: $h' = h + \mathrm{attention}(h)$,
    $h'' = h' + g \, \mathrm{MLP}(h')$; else $h'' = h + (1 - g) \, \mathrm{adapter}(h)$, a gated MLP of a sixteenth of
    the width; loss $\mathrm{CE} + \alpha \, \mathrm{mean}_t (\sum_l g_{t,l})^2$, $\alpha = 10^{-3}$. The second half of
    the layers is routed. K,V of tokens that skip are computed.

Where sources differ, this follows the released checkpoint as its port reads it: RMSNorm before tanh (a summary of the
paper has them the other way round), and the paper's factors g and 1 - g. `factors=straight_through` is the later
variant without them: they are 1, with the gradient they would have.

Deviations: the adapter reads what the MLP would read (which norm feeds it is not published anywhere). The model starts
from the fine-tuned dense one; without biases, gates start around one half. There is neither a target nor a schedule:
alpha decides what is saved, as in the paper. The dial, a threshold on g, is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from adaptive_bench.method import (
    EXECUTE_ALL,
    Backbone,
    Decision,
    DialSpec,
    ForwardCall,
    InitialChange,
    Method,
    MethodConfig,
    MethodSpec,
    SearchRange,
    Semantics,
    Site,
    SiteView,
    UsageError,
    every_branch,
)

NARROWER = 16  # router and adapter are a sixteenth as wide as the states and the MLP
TRAINED_THRESHOLD = 0.5
_KEEP, _GATE = "flexidepth_keep", "flexidepth_gate"


class FlexiDepthConfig(MethodConfig):
    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "alpha": SearchRange.parse(
            "log:1e-5:1e-1", source="paper 1e-3, released code 1e-4 and 1e-5; more for few layers"
        ),
        "layers": SearchRange.parse("int:1:16", source="paper 16 of 32; from 1 on (ours)"),
    }
    alpha: float = Field(1e-3, ge=0, description="weight of the squared number of layers used (paper)")
    layers: int = Field(0, ge=0, examples=[1], description="how many of the deepest layers are routed; 0: half (paper)")
    factors: Literal["gates", "straight_through"] = Field(
        "gates", description="factors of MLP and adapter: g and 1 - g, or 1 with the gradient of g and 1 - g"
    )

    def routed_layers(self, layers: int) -> int:
        """How many of a model's layers are routed."""
        return self.layers or layers // 2

    def on_model(self, layers: int) -> dict[str, Any]:
        return super().on_model(layers) | {"layers": self.routed_layers(layers)}


class FlexiDepth(Method):
    """Sends tokens through deep layers or through adapters; the dial is the threshold on the router's gate."""

    supports_data_parallel = True
    trains_alike = True
    Config: ClassVar[type[MethodConfig]] = FlexiDepthConfig
    solves_dial = True
    decides_by_layer = True
    freezes_backbone = True
    dial = DialSpec("threshold", 0.0, 1.0, 0.0)
    config: FlexiDepthConfig

    def __init__(self, config: FlexiDepthConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers, hidden = self.backbone_size
        count = config.routed_layers(layers)
        if not 1 <= count <= layers:
            raise UsageError(
                f"FlexiDepth routes 1 .. {layers} of {layers} layers, got layers={count}. Choose a number in between."
            )
        self.routed = list(range(layers - count, layers))
        width = max(1, backbone.config.intermediate_size // NARROWER)
        self.routers = nn.ModuleDict({str(layer): Router(hidden) for layer in self.routed})
        self.adapters = nn.ModuleDict({str(layer): Adapter(hidden, width) for layer in self.routed})

    @property
    def eligible_sites(self) -> frozenset[Site]:
        return every_branch(self.routed)

    def decide(self, view: SiteView) -> Decision:
        """Asks the router at attention's site; the MLP's site follows it and applies the factors and the adapter."""
        name, scratch = str(view.site.layer), view.call.scratch
        if name not in self.routers:
            return EXECUTE_ALL
        if view.site.branch == "attention":
            # One gate decides for the layer: the MLP's site, which comes next in this call, reads it from `scratch`.
            gate = torch.sigmoid(self.routers[name](view.normed.float()))[..., 0]
            threshold = TRAINED_THRESHOLD if view.call.training else self.value
            scratch[_GATE], scratch[_KEEP] = gate, gate > threshold
            if view.call.training:
                view.record(gate=gate)
            return Decision(scratch[_KEEP] if self._may_skip(view) else None)
        gate, keep = scratch[_GATE], scratch[_KEEP]
        soft = self.config.factors == "gates"
        runs, skips = (gate, 1.0 - gate) if soft else (_one(gate), _one(-gate))
        # Straight-through factors are exactly 1 and matter for gradients only, so inference has none.
        scale = runs[..., None] if soft or view.call.training else None
        if not self._may_skip(view):
            return Decision(scale=scale)

        def adapted(tokens: Tensor) -> Tensor:
            # Called for the tokens that skip only, by their flat indices [N].
            share: Tensor = skips.flatten().index_select(0, tokens)[:, None]
            output: Tensor = self.adapters[name](view.normed_at(tokens).float())
            return share * output

        return Decision(keep, scale, otherwise=adapted)

    def _may_skip(self, view: SiteView) -> bool:
        return view.call.training or self.value != self.dial.skip_nothing

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """Squared number of layers that a token uses (sum of its gates), averaged over real tokens."""
        gates = torch.stack([call.whole(call.of_real(gate)) for gate in call.records["gate"]], dim=-1)
        return {"layers_used": (self.config.alpha, gates.sum(dim=-1).square().mean())}

    @classmethod
    def initial_change(cls, config: FlexiDepthConfig) -> InitialChange | None:
        """The gates about halve the MLPs they scale, and which tokens skip at first is chance."""
        reason = "routers have no biases, so that gates start around one half, the threshold in training"
        if config.factors == "straight_through":
            return InitialChange(reason, bound=0.0, skipped=1.0)
        return InitialChange(f"{reason}, and the gates scale the MLPs", bound=0.7, skipped=1.0)

    @classmethod
    def starts_from(cls, spec: MethodSpec) -> MethodSpec | None:
        """Training starts from the fine-tuned dense model, which has learned the answer template."""
        return MethodSpec("dense")


class Router(nn.Module):
    """w U tanh(RMSNorm(D z)): maps states [..., H] to a logit [..., 1]."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        inner = max(1, hidden // NARROWER)
        self.down, self.norm = nn.Linear(hidden, inner, bias=False), nn.RMSNorm(inner, eps=1e-6)
        self.up, self.out = nn.Linear(inner, hidden, bias=False), nn.Linear(hidden, 1, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """Logit of running the layer."""
        logit: Tensor = self.out(self.up(torch.tanh(self.norm(self.down(states)))))
        return logit


class Adapter(nn.Module):
    """A gated MLP that maps states [..., H] to states [..., H]."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(hidden, width, bias=False), nn.Linear(hidden, width, bias=False)
        self.down = nn.Linear(width, hidden, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """What is added to the residual stream of a token that skips, before the factor 1 - g."""
        output: Tensor = self.down(functional.silu(self.gate(states)) * self.up(states))
        return output


def _one(values: Tensor) -> Tensor:
    """Ones with the gradient of `values`."""
    return 1.0 + (values - values.detach())
