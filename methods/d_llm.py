r"""D-LLM: a router per layer runs the layer for a token or drops the token there, along with its keys and values.

Idea: tokens differ in how many layers they need, so a small network before each layer decides from the token's state. A
token that skips a layer leaves no keys and values there, so skipping saves memory as well. Every token is asked to run
the same share of the layers, with a weight that grows during training.

Paper: "D-LLM: A Token Adaptive Computing Resource Allocation Strategy for Large Language Models", NeurIPS 2024.
Equations: $(r_{\mathrm{skip}}, r_{\mathrm{execute}}) = W_2 \, \mathrm{SiLU}(\mathrm{RMSNorm}(W_1 h))$ with $h$ the raw
    residual stream and an inner width of 512; a layer runs iff execute has a probability of at least one half; hard
    Gumbel-Softmax of temperature 1 in training; loss
    $\mathrm{CE} + \lambda(t) \, \mathrm{mean}_t | \bar w_t - \Omega |$ with $\bar w_t$ the share of layers that the
    token runs, including the first two, which are not routed, and $\lambda(t) = 5 \sin(\frac{\pi}{2} t / T)$. The first
    two tokens of a text run every layer and are not counted. Biases start at 0.1 (skip) and 2 (execute). K,V of
    skipping tokens do not exist in that layer (`evict`).

This follows the released code (`Jyk-122/D-LLM`), whose training multiplies the attention weights by the choices and
renormalises them to sum to 1, which is the same as masking the keys; attention is 0 for a token that sees no key, its
own included.

Deviations: the backbone is trained as a whole instead of with LoRA on a frozen one, as for all methods here. The choice
gets its gradient through the layer's output alone, not through the keys that it masks. A router is at most a quarter as
wide as the states, so that on a small model it does not cost as much as a layer. Omega defaults to what the run's
target saving asks for (released script: 0.5). The dial, an offset on the execute logit at inference, is ours. For
prompts, the released code computes everything and masks it, and its cache exposes entries of earlier requests; here
nothing that is dropped is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from adaptive_bench.method import (
    EXECUTE_ALL,
    Backbone,
    Decision,
    ForwardCall,
    InitialChange,
    KVPolicy,
    LogitRouter,
    MethodConfig,
    SearchRange,
    Semantics,
    Site,
    SiteView,
    UsageError,
    every_branch,
    sampled_choice,
)

# In 1 routers learned from later tokens if a token saw no key, and did not run (nor were counted) if nothing skipped.
VERSION = 2
SKIP, EXECUTE = 0, 1
SKIP_BIAS, EXECUTE_BIAS = 0.1, 2.0
NARROWER = 4  # a router is at most a quarter as wide as the states


class DLLMConfig(MethodConfig):
    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "rate_weight": SearchRange.parse("log:0.5:50", source="a decade around the released script's 5"),
        "start_layer": SearchRange.parse("int:0:2", source="released script 2; fewer for few layers (ours)"),
    }
    target_parameter: ClassVar[str] = "omega"
    omega: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of all layers that a token runs; default: set by the run's target saving",
    )
    rate_weight: float = Field(5.0, ge=0, description="weight of the distance to omega at the end (released script)")
    start_layer: int = Field(2, ge=0, examples=[0], description="first routed layer (released script)")
    reserved: int = Field(2, ge=0, description="how many first tokens of a text run every layer (released code)")
    width: int = Field(512, ge=1, description="inner width of a router (released code), at most a quarter of H")


class DLLM(LogitRouter):
    """Drops tokens from layers; the dial is an offset on the execute logit."""

    supports_data_parallel = True
    trains_alike = True
    execute = EXECUTE
    Config: ClassVar[type[MethodConfig]] = DLLMConfig
    unit = "layer"
    kv_policy: KVPolicy = "evict"
    solves_dial = True
    config: DLLMConfig

    def __init__(self, config: DLLMConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers, hidden = self.backbone_size
        self.routed = list(range(config.start_layer, layers))
        if not self.routed:
            raise UsageError(
                f"D-LLM routes the layers from start_layer on, got start_layer={config.start_layer} with {layers} "
                "layers. Lower it."
            )
        width = min(config.width, max(1, hidden // NARROWER))
        self.routers = nn.ModuleDict({str(layer): Router(hidden, width) for layer in self.routed})

    @property
    def eligible_sites(self) -> frozenset[Site]:
        return every_branch(self.routed)

    def decide(self, view: SiteView) -> Decision:
        """Samples a hard choice with a soft gradient while training; takes the larger logit otherwise."""
        # By position, so that a call with a cache spares the same tokens.
        name, reserved = str(view.site.layer), view.call.positions < self.config.reserved
        if name not in self.routers:
            return EXECUTE_ALL
        logits = self.routers[name](view.hidden.float())
        if not view.call.training:
            if self.value == self.dial.skip_nothing:
                return EXECUTE_ALL
            return Decision(keep=self.runs(logits) | reserved)
        chosen = sampled_choice(self, view, logits, chosen=EXECUTE, temperature=1.0, place=view.site.layer)
        executed = torch.where(reserved, 1.0, chosen)
        view.record(executed=executed)
        # `soft`: who skips leaves no K,V, as at inference, but the branch runs, so that the choice gets a gradient.
        return Decision(keep=executed.detach() > 0.5, scale=executed[..., None], soft=True)

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """Distance between omega and the share of layers a token runs, averaged over real, unreserved tokens."""
        executed = torch.stack([call.of_real(one) for one in call.records["executed"]], dim=-1)
        omega = 1.0 - self.target if self.config.omega is None else self.config.omega
        counted = call.of_real(call.positions) >= self.config.reserved
        # Below 1 if layers are spared: the share is then that of a model scaled down to the layers that were asked.
        asked = executed.shape[-1] / len(self.routed)
        distance = rate_distance(executed, self.backbone_size[0] * asked, omega)
        distance, count = call.whole(torch.stack([distance * counted, counted.to(distance)], dim=-1)).sum(dim=0)
        weight = self.config.rate_weight * rate_ramp(self.step, self.total_steps)
        return {"rate": (weight, distance / count.clamp(min=1))}

    @classmethod
    def initial_change(cls, config: MethodConfig) -> InitialChange:
        """Choices are sampled at odds of e^1.9 to 1."""
        reason = "biases start at 0.1 and 2, as in the released code, and training samples: one choice in eight skips"
        return InitialChange(reason, bound=0.0, skipped=0.25)


class Router(nn.Module):
    """W2 SiLU(RMSNorm(W1 h)): maps states [..., H] to logits [..., 2] of skip and execute."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.inner, self.norm, self.out = nn.Linear(hidden, width), nn.RMSNorm(width, eps=1e-5), nn.Linear(width, 2)
        with torch.no_grad():
            self.out.bias.copy_(torch.tensor([SKIP_BIAS, EXECUTE_BIAS]))

    def forward(self, states: Tensor) -> Tensor:
        """Logits [..., 2] of states [..., H]."""
        logits: Tensor = self.out(functional.silu(self.norm(self.inner(states))))
        return logits


def rate_distance(executed: Tensor, layers: float, omega: float) -> Tensor:
    """|mean_l w - omega| [N] for choices [N, routed]; layers that are not routed count as executed."""
    return ((executed.sum(dim=-1) + layers - executed.shape[-1]) / layers - omega).abs()


def rate_ramp(step: int, total_steps: int) -> float:
    """sin(pi/2 t/T): factor on the weight of the rate loss at optimizer step t of 1 .. T."""
    return math.sin(math.pi / 2 * step / total_steps)
