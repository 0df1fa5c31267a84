"""Base class of SkipGPT and Informed Routing: a router before every attention and MLP, with one target for all.

A router outputs two logits, execute (0) and skip (1). Training samples the choice with a hard Gumbel-Softmax whose
temperature falls linearly from 5 to 1; a penalty pulls the mean of all executed shares towards the target; the backbone
is frozen. Inference takes the larger logit, with an offset on the execute logit as the dial.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from adaptive_bench.method import (
    Backbone,
    Decision,
    ForwardCall,
    LogitRouter,
    MethodConfig,
    MethodSpec,
    Semantics,
    SiteView,
    annealed,
    initialised_linear,
)

EXECUTE, SKIP = 0, 1
ROUTER_STD, EXECUTE_BIAS = 0.01, 5.0
FIRST_TEMPERATURE, LAST_TEMPERATURE = 5.0, 1.0


class BranchRoutersConfig(MethodConfig):
    """Parameters that both methods have."""

    target_parameter: ClassVar[str] = "sparsity"
    sparsity: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="share s of token-branches to skip at the end of training; default: set by the run's target saving",
    )
    penalty_weight: float = Field(ge=0, description="weight of the distance to the target")


class BranchRouters(LogitRouter):
    """Routes every branch on a frozen backbone; the dial is an offset on the execute logit."""

    trains_alike = True
    Config: ClassVar[type[MethodConfig]] = BranchRoutersConfig
    solves_dial = True
    freezes_backbone = True  # only the routers, and what a subclass adds, are trained
    config: BranchRoutersConfig

    def __init__(self, config: BranchRoutersConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers, hidden = self.backbone_size
        self.routers = nn.ModuleList(self.new_router(hidden) for _ in range(2 * layers))

    def new_router(self, hidden: int) -> nn.Module:
        """A new router, which maps states [..., H] to logits [..., 2]."""
        return biased_linear(hidden)

    def reads(self, view: SiteView) -> Tensor:
        """The states [B, S, H] that the branch's router reads."""
        return view.normed

    @property
    def routing_step(self) -> tuple[int, int]:
        """The current step of the routers' training (from 1), and its number of steps."""
        return self.step, self.total_steps

    def decide(self, view: SiteView) -> Decision:
        """Samples a hard choice with a soft gradient while training; takes the larger logit otherwise."""
        logits = self.routers[view.site.number](self.reads(view).float())
        # 1 at inference, where logits are compared and no temperature matters.
        heat = temperature(*self.routing_step) if view.call.training else 1.0
        return self.route(view, logits, temperature=heat, place=view.site.number)

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """Distance between the target and the executed share of real tokens, averaged over all branches."""
        end = 1.0 - (self.target if self.config.sparsity is None else self.config.sparsity)
        shares = [call.whole(call.of_real(executed)).mean() for executed in call.records["executed"]]
        target = annealed(1.0, end, *self.routing_step)
        return {"target": (self.config.penalty_weight, target_distance(torch.stack(shares), target))}

    @classmethod
    def starts_from(cls, spec: MethodSpec) -> MethodSpec | None:
        """Training starts from the fine-tuned dense model, since a frozen backbone cannot learn the answer template."""
        return MethodSpec("dense")


def biased_linear(inputs: int) -> nn.Linear:
    """A linear map to two logits that starts biased towards "execute"."""
    linear = initialised_linear(inputs, 2, std=ROUTER_STD, bias=0.0)
    nn.init.constant_(linear.bias[EXECUTE : EXECUTE + 1], EXECUTE_BIAS)
    return linear


def two_layer_router(inputs: int, inner: int) -> nn.Module:
    """H -> inner -> 2 with a ReLU: Kaiming initialisation first, then a map that starts biased towards "execute"."""
    first = initialised_linear(inputs, inner, std=(2.0 / inputs) ** 0.5, bias=0.0)
    return nn.Sequential(first, nn.ReLU(), biased_linear(inner))


def temperature(step: int, total_steps: int) -> float:
    """Temperature of the Gumbel-Softmax at optimizer step `step` of 1 .. total_steps: from 5 linearly towards 1."""
    return FIRST_TEMPERATURE + (LAST_TEMPERATURE - FIRST_TEMPERATURE) * (step - 1) / total_steps


def target_distance(shares: Tensor, target: float) -> Tensor:
    """| (1 - s) - mean of the executed shares [branches] |."""
    return (target - shares.mean()).abs()
