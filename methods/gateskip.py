"""GateSkip: sigmoid-linear gates on every attention and MLP branch decide which tokens skip it.

Idea: a gate reads the branch's input, multiplies its output, and is pushed towards zero by a sparsity penalty. The
mean gate value of a token is its importance for that branch; the least important share of tokens skips it. In
training the kept share decays, so that the model learns to live with skipped states.

Paper: "What Layers When: Learning to Skip Compute in LLMs with Residual Gates", https://arxiv.org/abs/2510.13876.
Equations: h' = h + o * g(h), g(h) = sigmoid(W h + b) (eq. 2); loss CE + lambda L_S (eq. 4, 5); threshold = quantile
of the mean gates at 1 - budget, skip where score <= threshold (eq. 6, Algorithm 3); budget 1.0 -> 0.8 over training
(Algorithm 1).

Deviations in `bench` semantics (`paper` takes the equations literally, with K,V copied from the layer below):
* thresholds are calibrated per branch on held-out training text, so a decision is causal and free of the batch;
* K,V of skipped tokens are recomputed from the state they carry; budget 1 skips nothing (the rule `<=` would skip
  one token);
* training drops exactly floor(q n) tokens of the batch, ties by position, instead of an interpolated quantile.
In both: the gate reads the pre-normed input and its gradient stops there, as in the released code (`input`,
`detach`); the default penalty is the mean of g^2 (the released code), since the paper's norm of a scalar channel is
an L1 (`loss=l1`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from adaptive_bench.engine.call import ForwardCall, SiteView
from adaptive_bench.engine.kv_cache import KVPolicy
from adaptive_bench.model.backbone import Backbone
from adaptive_bench.model.calibration import Thresholds
from adaptive_bench.model.decisions import Decision, drop_lowest, paper_quantile_keep
from adaptive_bench.model.method import DialSpec, Method, MethodConfig, initialised_linear
from adaptive_bench.spec import MethodSpec, Semantics

GATE_STD, GATE_BIAS = 0.01, 5.0  # section 3.4: sigmoid(5) = 0.9933, close to the pretrained model


class GateSkipConfig(MethodConfig):
    """Parameters of GateSkip with the paper's defaults."""

    shape: Literal["vector", "scalar"] = Field("vector", description="gate output: one value per channel, or one")
    sharing: Literal["separate", "shared"] = Field(
        "separate", description="own gate per branch, or one for all of a kind"
    )
    loss: Literal["l2", "l1"] = Field("l2", description="penalty: mean of g^2 (released code) or of |g| (Algorithm 1)")
    sparsity_weight: float = Field(0.1, ge=0, description="lambda (appendix, table of hyper-parameters)")
    budget_start: float = Field(1.0, gt=0, le=1, description="kept share at the first step (section 4.1)")
    budget_end: float = Field(0.8, gt=0, le=1, description="kept share at the last step (section 4.1)")
    input: Literal["prenorm", "residual"] = Field(
        "prenorm", description="what the gate reads (code: prenorm, equations: residual)"
    )
    detach: bool = Field(True, description="stop the gradient at the gate's input (released code)")
    kv: KVPolicy | None = Field(None, description="default: recompute in bench, copy_below in paper semantics")


class GateSkip(Method):
    """One gate per branch; the dial is the budget, the share of tokens that execute a branch."""

    Config: ClassVar[type[MethodConfig]] = GateSkipConfig
    config: GateSkipConfig

    def __init__(self, config: GateSkipConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers, hidden = self.backbone_size
        outputs = hidden if config.shape == "vector" else 1
        self.gates = nn.ModuleList(
            initialised_linear(hidden, outputs, std=GATE_STD, bias=GATE_BIAS)
            for _ in range(2 * layers if config.sharing == "separate" else 2)
        )
        if semantics == "bench":
            self.thresholds = Thresholds(range(2 * layers))

    @property
    def dial(self) -> DialSpec:
        """Keep budget."""
        return DialSpec("budget", 0.05, 1.0, 1.0)

    @property
    def kv_policy(self) -> KVPolicy:
        """As configured; training sees identity skipping with K,V intact."""
        if self.training:
            return "recompute"
        return self.config.kv or ("copy_below" if self.semantics == "paper" else "recompute")

    @property
    def max_saved_tokens(self) -> float:
        """Every branch of every layer can skip."""
        return 1.0 - self.dial.minimum

    @property
    def skip_share(self) -> float:
        """1 - budget; while training the budget follows b1 - (b1 - b2) (t - 1)/(T - 1)."""
        config = self.config
        if self.training:
            return 1.0 - (config.budget_start - (config.budget_start - config.budget_end) * self.progress)
        return round(1.0 - self.value, 12)

    def dial_for(self, saved_tokens: float) -> float:
        """Every branch skips the same share."""
        return 1.0 - saved_tokens

    def decide(self, view: SiteView) -> Decision:
        """Gate values [B, S, H or 1] scale the branch; their mean ranks the tokens."""
        states = view.normed if self.config.input == "prenorm" else view.hidden
        states = states.detach() if self.config.detach else states
        index = view.site.number if self.config.sharing == "separate" else view.site.number % 2
        gate = torch.sigmoid(self.gates[index](states.float()))
        if view.call.training:
            view.record(gate=gate)
        return Decision(self._keep(view, gate.detach().mean(dim=-1)), gate)

    def _keep(self, view: SiteView, scores: Tensor) -> Tensor | None:
        if view.call.training:
            return drop_lowest(scores, view.call.valid, self.skip_share)
        if self.thresholds is not None:
            return self.thresholds.keep(view, scores, self.skip_share)
        return paper_quantile_keep(scores, view.call.valid, self.skip_share)

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """Gate sparsity, averaged over branches, real tokens and channels."""
        power = 2 if self.config.loss == "l2" else 1
        per_branch = [gate[call.valid].pow(power).mean() for gate in call.records["gate"]]
        return {"sparsity": (self.config.sparsity_weight, torch.stack(per_branch).mean())}

    @classmethod
    def training_spec(cls, config: MethodConfig, spec: MethodSpec) -> MethodSpec:
        """Semantics and KV policy matter at inference only."""
        return MethodSpec(spec.name, tuple((key, value) for key, value in spec.params if key != "kv"))
