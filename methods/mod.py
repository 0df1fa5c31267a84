r"""Mixture-of-Depths (MoD): every second block has a capacity; a router picks the tokens that pass through it.

Idea: a linear router scores the tokens of a sequence; the top k go through the block's attention and MLP and attend
only to each other, while the others bypass it on the residual stream. The router's score multiplies the block's update,
which is what gives the router a gradient. Top-k looks at the whole sequence; during generation, membership has to be
determined from the token alone.

Paper: "Mixture-of-Depths: Dynamically allocating compute in transformer-based language models",
    https://arxiv.org/abs/2404.02258.
Equations: $x' = x + r f(\tilde x)$ for selected tokens, $x$ otherwise, $r = w x$ (eq. 1);
$k = \max(1, \lfloor c S \rfloor)$ with the capacity $c$; a membership predictor trained with binary cross entropy on
stop-gradient inputs (section 3.5). K,V of bypassing tokens do not exist in that block (`evict`).

The paper's other way to sample is an auxiliary loss, which reaches the backbone: binary cross entropy of sigmoid(r)
against membership, so that r itself tells which tokens are in (`auxiliary_weight`, with `route_by=router`).

`paper` semantics route a prompt by top-k and generated tokens by the predictor. The paper cuts the predictor at 0.5,
which is the one capacity the model was trained for; here the cut moves with the dial, calibrated on held-out training
text whose prompts are routed by top-k.

Deviations, all but the first because a pretrained model is fine-tuned instead of trained from scratch:
* `bench` semantics compare the router's own score with thresholds calibrated to the capacity, for every token, prompt
  included: the score reads one token, so this is causal and batch-free, and no predictor has to be paid for
  (`route_by=predictor` has one; its gradient enters the norm that is clipped, so the two are trained separately);
* capacity anneals linearly from 1 to `capacity`, reached after 70 % of training (the paper trains at 12.5 % from the
  start); its default comes from the run's target saving, the same for all methods (20 % of token-branches: 0.6);
* r = w x + b of the pre-normed input starts at exactly 1, so that at capacity 1 the untrained model is the pretrained
  one, whatever the width: b is 1, and w x is of the order of 1e-9, which is rounded away next to 1. w x is not 0,
  because it ranks the tokens (they are compared by r - 1, to all its digits): top-k would order equal scores by
  position, and no threshold separates them. The gradient of w is that at w = 0, and Adam's first step outgrows the
  random order;
* training ranks a sequence's prompt and answer together, as the paper does, but thresholds are calibrated for prompt
  and answer separately, so that each skips the asked share.

The authors released no code. Ports (`astramind-ai/Mixture-of-depths`, `sramshetty/mixture-of-depths`, MoD in GateSkip's
code) start routers at random and so change a pretrained model; p-MoD, made for pretrained models, starts at 1 as here,
with r = 1 + 0.2 tanh(w x + b).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

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
    KVPolicy,
    Method,
    MethodConfig,
    MethodSpec,
    SearchRange,
    Semantics,
    Site,
    SiteView,
    Thresholds,
    UsageError,
    every_branch,
    top_k_per_row,
)

VERSION = 2  # 1 started from a router that scaled branches, and compared r with thresholds, not r - 1
# Standard deviation of w x for an input of unit variance: enough to rank tokens, while 1 + w x is rounded to 1.
ROUTER_NOISE = 1e-9


class MixtureOfDepthsConfig(MethodConfig):
    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "capacity_start": SearchRange.parse("linear:0.6:1", source="not from the paper: how gently capacities fall"),
        "every": SearchRange.parse("int:1:2", source="paper: every second block, its best, and every block"),
        "auxiliary_weight": SearchRange.parse(
            "choice:0|0.001|0.01|0.1", source="paper: with and without, no figure; none, and decades (ours)"
        ),
    }
    falling: ClassVar[Mapping[str, str]] = {"capacity_start": "capacity"}
    target_parameter: ClassVar[str] = "capacity"
    capacity: float | None = Field(
        None,
        gt=0,
        le=1,
        description="capacity of routed blocks at the end of training; default: set by the run's target saving "
        "(paper: 0.125)",
    )
    capacity_start: float = Field(
        1.0, gt=0, le=1, description="capacity at the first step; 1 leaves a pretrained model intact"
    )
    every: int = Field(2, ge=1, examples=[1], description="route every n-th block (paper: every second)")
    route_by: Literal["router", "predictor"] | None = Field(
        None, description="whose score decides without top-k; default: router in bench, predictor in paper semantics"
    )
    predictor_weight: float = Field(
        1.0, ge=0, description="weight of the predictor's loss, whose gradient never reaches the backbone"
    )
    auxiliary_weight: float = Field(
        0.0, ge=0, examples=[0.01], description="weight of the auxiliary loss on the router itself (paper: no figure)"
    )


class Router(nn.Linear):
    """r = w x + b, which starts at 1. It returns r - 1, because rounding r would lose the digits that rank tokens."""

    def reset_parameters(self) -> None:
        """Gives every token r = 1 (rounded), and ranks tokens along a random direction."""
        nn.init.normal_(self.weight, std=ROUTER_NOISE / math.sqrt(self.in_features))
        nn.init.ones_(self.bias)

    def forward(self, states: Tensor) -> Tensor:
        """r - 1 [..., 1] for states [..., H]."""
        return functional.linear(states, self.weight, self.bias - 1.0)


class MixtureOfDepths(Method):
    """Routes whole blocks; the dial is their capacity."""

    supports_data_parallel = True
    Config: ClassVar[type[MethodConfig]] = MixtureOfDepthsConfig
    unit = "layer"
    paper_class = "C1"  # top-k over the prompt
    kv_policy: KVPolicy = "evict"
    dial = DialSpec("capacity", 0.05, 1.0, 1.0)
    config: MixtureOfDepthsConfig
    thresholds: Thresholds

    def __init__(self, config: MixtureOfDepthsConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers, hidden = self.backbone_size
        self.routed = [layer for layer in range(layers) if layer % config.every == config.every - 1]
        if not self.routed:
            raise UsageError(
                f"MoD must route at least one block, got every={config.every} with {layers} layers. Lower every."
            )
        self.routers = nn.ModuleDict({str(layer): Router(hidden, 1) for layer in self.routed})
        # A predictor that nobody asks for would enter the norm that is clipped, so it does not exist.
        predicted = self.routed if _route_by(config, semantics) == "predictor" else []
        self.predictors = nn.ModuleDict(
            {
                str(layer): nn.Sequential(nn.Linear(hidden, hidden // 2), nn.SiLU(), nn.Linear(hidden // 2, 1))
                for layer in predicted
            }
        )
        self.thresholds = Thresholds(Site(layer, "layer").number for layer in self.routed)

    @property
    def eligible_sites(self) -> frozenset[Site]:
        return every_branch(self.routed)

    @property
    def max_saved_tokens(self) -> float:
        """The share that is skipped at the smallest capacity; only routed blocks skip."""
        return (1.0 - self.dial.minimum) * len(self.routed) / self.backbone_size[0]

    @property
    def skip_share(self) -> float:
        """1 - capacity; in training the capacity anneals from `capacity_start` to `capacity`."""
        config = self.config
        if self.training:
            return 1.0 - self.annealed(config.capacity_start, config.capacity or self.dial_for(self.target))
        return round(1.0 - self.value, 12)

    def dial_for(self, saved_tokens: float) -> float:
        """The capacity at which the routed blocks skip this share of all token-branches."""
        return max(self.dial.minimum, 1.0 - saved_tokens * self.backbone_size[0] / len(self.routed))

    def decide(self, view: SiteView) -> Decision:
        """Scales the block by the router's r [B, S, 1]; top-k or thresholds select the tokens that pass through it."""
        name, call = str(view.site.layer), view.call
        if name not in self.routers:
            return EXECUTE_ALL
        states = view.normed.float()
        # The router returns r - 1 [B, S, 1], see `Router`.
        above_one = self.routers[name](states)
        scale, score = 1.0 + above_one, above_one[..., 0]
        if call.training or (self.semantics == "paper" and call.phase == "prefill"):
            # Top-k of the whole sequence: what thresholds approximate one token at a time.
            keep = top_k_per_row(score.detach(), call.valid, 1.0 - self.skip_share)
            if call.training and (self.predictors or self.config.auxiliary_weight):
                view.record(member=keep, routed=scale[..., 0])
            if call.training and self.predictors:
                view.record(prediction=self._prediction(name, states))
            return Decision(keep, scale)
        # The predictor only tells who passes; the update is scaled by the router either way.
        ranks = self._prediction(name, states) if self.predictors else score
        return Decision(self.thresholds.keep(view, ranks, self.skip_share), scale)

    def _prediction(self, layer: str, states: Tensor) -> Tensor:
        """The predictor's logits [B, S]; no gradient flows into the states."""
        logits: Tensor = self.predictors[layer](states.detach())[..., 0]
        return logits

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """How well the predictors and, with `auxiliary_weight`, the routers tell which tokens are in the top k."""
        terms = {}
        if self.predictors:
            terms["predictor"] = (self.config.predictor_weight, _membership_loss(call, "prediction"))
        if self.config.auxiliary_weight:
            terms["auxiliary"] = (self.config.auxiliary_weight, _membership_loss(call, "routed"))
        return terms

    @classmethod
    def training_spec(cls, config: MixtureOfDepthsConfig, spec: MethodSpec) -> MethodSpec:
        """One training serves both semantics; `route_by` matters only in that it asks for a predictor or not."""
        others = {key: value for key, value in spec.params if key != "route_by"}
        if _route_by(config, spec.semantics) == "predictor":
            others["route_by"] = "predictor"
        return MethodSpec(spec.name, tuple(sorted(others.items())))


def _membership_loss(call: ForwardCall, logits: str) -> Tensor:
    """Binary cross entropy of the logits recorded under a name against membership of the top k, over routed blocks and
    real tokens.
    """
    per_block = [
        functional.binary_cross_entropy_with_logits(
            call.whole(call.of_real(logit)), call.whole(call.of_real(member).float())
        )
        for logit, member in zip(call.records[logits], call.records["member"], strict=True)
    ]
    return torch.stack(per_block).mean()


def _route_by(config: MixtureOfDepthsConfig, semantics: Semantics) -> str:
    return config.route_by or ("predictor" if semantics == "paper" else "router")
