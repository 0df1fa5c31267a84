"""Routers before every attention and every MLP, under one target: what SkipGPT and Informed Routing share.

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
    """Parameters of both methods."""

    target_parameter: ClassVar[str] = "sparsity"
    sparsity: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="share of token-branches to skip in the end, s; default: what the run's target saving asks for",
    )
    penalty_weight: float = Field(ge=0, description="weight of the distance to the target")


class BranchRouters(LogitRouter):
    """Routes every branch on a frozen backbone; the dial is an offset on the execute logit."""

    trains_alike = True
    Config: ClassVar[type[MethodConfig]] = BranchRoutersConfig
    solves_dial = True
    config: BranchRoutersConfig

    def __init__(self, config: BranchRoutersConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers, hidden = self.backbone_size
        self.routers = nn.ModuleList(self.new_router(hidden) for _ in range(2 * layers))

    def new_router(self, hidden: int) -> nn.Module:
        """A router of states [..., H], giving logits [..., 2]."""
        return biased_linear(hidden)

    def reads(self, view: SiteView) -> Tensor:
        """States [B, S, H] that the router of a branch sees."""
        return view.normed

    @property
    def freezes_backbone(self) -> bool:
        """Only the method's own parameters train."""
        return True

    @property
    def routing_step(self) -> tuple[int, int]:
        """Where the training of the routers stands: at step 1 .. n of n."""
        return self.step, self.total_steps

    def decide(self, view: SiteView) -> Decision:
        """Hard choice with a soft gradient while training; the larger logit otherwise."""
        logits = self.routers[view.site.number](self.reads(view).float())
        heat = temperature(*self.routing_step) if view.call.training else 1.0
        return self.route(view, logits, temperature=heat, place=view.site.number)

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """Distance of the executed share of real tokens, averaged over all branches, to the target."""
        end = 1.0 - (self.target if self.config.sparsity is None else self.config.sparsity)
        shares = [call.whole(call.of_real(executed)).mean() for executed in call.records["executed"]]
        target = annealed(1.0, end, *self.routing_step)
        return {"target": (self.config.penalty_weight, target_distance(torch.stack(shares), target))}

    @classmethod
    def starts_from(cls, spec: MethodSpec) -> MethodSpec | None:
        """The dense model, fine-tuned: a frozen backbone cannot learn the answer template."""
        return MethodSpec("dense")


def biased_linear(inputs: int) -> nn.Linear:
    """A map to two logits that starts at "execute"."""
    linear = initialised_linear(inputs, 2, std=ROUTER_STD, bias=0.0)
    nn.init.constant_(linear.bias[EXECUTE : EXECUTE + 1], EXECUTE_BIAS)
    return linear


def two_layer_router(inputs: int, inner: int) -> nn.Module:
    """H -> inner -> 2 with a ReLU; the first map starts as Kaiming has it, the second at "execute"."""
    first = initialised_linear(inputs, inner, std=(2.0 / inputs) ** 0.5, bias=0.0)
    return nn.Sequential(first, nn.ReLU(), biased_linear(inner))


def temperature(step: int, total_steps: int) -> float:
    """Of the Gumbel-Softmax at optimizer step `step` of 1 .. total_steps: from 5 linearly towards 1."""
    return FIRST_TEMPERATURE + (LAST_TEMPERATURE - FIRST_TEMPERATURE) * (step - 1) / total_steps


def target_distance(shares: Tensor, target: float) -> Tensor:
    """| (1 - s) - mean of the executed shares [branches] |."""
    return (target - shares.mean()).abs()
