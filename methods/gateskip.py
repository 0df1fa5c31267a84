r"""GateSkip: sigmoid-linear gates on every attention and MLP branch decide which tokens skip it.

Idea: a gate reads the branch's input, multiplies its output, and is pushed towards zero by a sparsity penalty. A
token's mean gate value is its importance for that branch; the least important share of tokens skips it. During
training the kept share decays, so that the model learns to cope with skipped states.

Paper: "What Layers When: Learning to Skip Compute in LLMs with Residual Gates", https://arxiv.org/abs/2510.13876.
Equations: $h' = h + o \odot g(h)$, $g(h) = \sigma(W h + b)$ (eq. 2); loss $\mathrm{CE} + \lambda L_S$ (eq. 4, 5);
threshold $\tau$ = quantile of the mean gates at 1 - budget, skip where score $\le \tau$ (eq. 6, Algorithm 3); budget
from 1.0 to 0.8 over training (Algorithm 1).

Three rules decide who skips:

* `bench` semantics, the default, are our working rule: a threshold per branch, calibrated on held-out training text, so
  that a decision is causal and independent of the batch.
* `@paper` is what the released code (`Thiggel/GateSkip`) does: $\tau$ is `torch.quantile` of all scores of a call at
  q = 1 - budget, interpolated linearly, and a token skips if its score is at most $\tau$. No token skips at q = 0, in a
  call of one token, or if all scores are 1. When two rows are decoded together, one of them skips even at q = 0.05.
  Training sorts the scores of all n real tokens of a batch, prompts and answers together, and skips the lowest
  floor(q n) + 1 of them, hence one token even at a budget of 1. Its penalty is averaged over padding as well. K,V of
  skipped tokens are recomputed: the code is meant to copy those of the layer below, but its copy never reaches the
  cache.
* `gateskip[rule=text]@paper` is what the text says: equation 6 and Algorithm 3, in training too. It skips even at a
  budget of 1, and it skips every token if all scores are equal or n = 1, so it cannot generate answers. K,V are copied
  from the layer below. With `loss=l1` its penalty is the text's as well.

With `gateskip[rule=exact_share]@paper` exactly floor(q n) of a call's n tokens skip, ties broken by position. K,V are
copied from the layer below, and training is that of `bench`.

`compensate=scale` is ours: it does for gated branches what `static_depth[compensate=scale]` does for layers.

Deviations: in `bench` semantics K,V of skipped tokens are recomputed from the state they carry, and training drops the
share that the thresholds will drop from each sequence, of its prompt and of its answer (the paper trains on one
sequence a step): of n tokens the floor(q n + u) with the lowest scores, ties broken by position, where u is uniform in
[0, 1), so that short answers drop the share q in the mean. Under all three rules, the budget stays at its final value
from 70 % of the training on (released code: a plateau too); the gate reads the pre-normed input and its gradient stops
there, as in the released code (`input`, `detach`). Real tokens are those of the attention mask (released code: all but
the ids of padding and end), and padding runs no branch. Where every token executes (`eligible`), a branch has no gate.
On Gemma 2, which normalises a branch's output, the gate multiplies the normalised output; the released code gates
before that norm, which cancels a scalar gate.

Penalty and lambda belong together: the default pair is the released code's, the mean of g^2 with lambda 1; the paper's
is an L1 penalty with lambda 0.1 (`loss=l1`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from adaptive_bench.method import (
    Backbone,
    Branch,
    CausalityClass,
    Compensation,
    Decision,
    DialSpec,
    Fitted,
    ForwardCall,
    HeldOutText,
    InitialChange,
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
    compensated,
    draw_key,
    drop_lowest,
    drop_lowest_per_row,
    initialised_linear,
    paper_quantile_keep,
    site_scales,
    uniform_from,
)

VERSION = 2  # in 1 training ranked the tokens of a micro-batch together
PAIRED_WEIGHT = {"l1": 0.1, "l2": 1.0, "kl_layer": 0.1, "kl_element": 1.0}  # paper 0.1, released code 1.0
Rule = Literal["code", "text", "exact_share"]
GATE_STD, GATE_BIAS = 0.01, 5.0  # section 3.4: sigmoid(5) = 0.9933, close to the pretrained model


class GateSkipConfig(MethodConfig):
    """Parameters of GateSkip with the paper's defaults; the alternatives are the rows of its ablation table."""

    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "sparsity_weight": SearchRange.parse(
            "log:0.001:10", source="paper 0.1 (l1), released code 1 (l2); a decade above, two below"
        ),
        "shape": SearchRange.parse("choice:vector|scalar", source="paper's ablation of the gate's shape"),
        "skip_modules": SearchRange.parse("choice:both|attention|mlp", source="paper's ablation of what may skip"),
        "stride": SearchRange.parse("int:1:2", source="paper: every layer; every second one in its ablation"),
    }
    # `bench` semantics refuse both rules.
    unsound: ClassVar[frozenset[str]] = frozenset({"rule=text", "rule=exact_share"})
    falling: ClassVar[Mapping[str, str]] = {"budget_start": "budget_end"}
    target_parameter: ClassVar[str] = "budget_end"
    shape: Literal["vector", "scalar"] = Field("vector", description="gate output: one value per channel, or one")
    sharing: Literal["separate", "shared"] = Field(
        "separate", description="one gate per branch, or one for all attention branches and one for all MLPs"
    )
    architecture: Literal["linear", "mlp"] = Field("linear", description="gate network: linear, or H -> 2H -> output")
    placement: Literal["after", "before", "both"] = Field(
        "after", description="what the gate multiplies: output, input, or both (as the released code's 'before' does)"
    )
    loss: Literal["l2", "l1", "kl_layer", "kl_element"] = Field(
        "l2",
        description="mean of g^2 (released code) or |g| (Algorithm 1), or KL to the budget, of means or of elements",
    )
    sparsity_weight: float | None = Field(
        None, ge=0, description="lambda; default: 0.1 for l1 and kl_layer (paper), 1 for l2 and kl_element (its code)"
    )
    budget_start: float = Field(1.0, gt=0, le=1, description="kept share at the first step (section 4.1)")
    budget_end: float | None = Field(
        None,
        gt=0,
        le=1,
        description="kept share at the end of training; default: set by the run's target saving (paper: 0.8)",
    )
    skip_unit: Literal["module", "layer"] = Field(
        "module", description="decide for each branch, or for each layer by its attention's gate"
    )
    skip_modules: Literal["both", "attention", "mlp"] = Field("both", description="which branches may skip")
    stride: int = Field(1, ge=1, examples=[2], description="only every n-th layer may skip (the last of each n)")
    frozen: bool = Field(False, description="train only the gates, on a backbone that was fine-tuned before")
    input: Literal["prenorm", "residual"] = Field("prenorm", description="what the gate reads (code: prenorm)")
    detach: bool = Field(True, description="stop the gradient at the gate's input (released code)")
    kv: Literal["recompute", "copy_below", "evict"] | None = Field(
        None, description="default: recompute; copy_below with rule=text and rule=exact_share (paper's text)"
    )
    rule: Rule = Field(
        "code", description="rule of paper semantics: the released code's, the paper's text, or exactly floor(q n) skip"
    )
    compensate: Compensation = Field(
        "none", description="what a token gets for a skipped branch: nothing, or its state times a fitted factor s"
    )

    @property
    def penalty_weight(self) -> float:
        """lambda: as configured, else the default that belongs to the penalty."""
        return PAIRED_WEIGHT[self.loss] if self.sparsity_weight is None else self.sparsity_weight

    def on_model(self, layers: int) -> dict[str, Any]:
        return super().on_model(layers) | {"sparsity_weight": self.penalty_weight}


class GateSkip(Method):
    """Gates every branch; the dial is the budget, the share of tokens that execute a branch."""

    supports_data_parallel = True
    Config: ClassVar[type[MethodConfig]] = GateSkipConfig
    paper_class: ClassVar[CausalityClass] = "C2"  # one quantile over the tokens of a call
    dial = DialSpec("budget", 0.05, 1.0, 1.0)
    config: GateSkipConfig

    def __init__(self, config: GateSkipConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers, hidden = self.backbone_size
        outputs = hidden if config.shape == "vector" else 1
        self.gates = nn.ModuleList(
            _gate(hidden, outputs, config.architecture)
            for _ in range(2 * layers if config.sharing == "separate" else 2)
        )
        active = [layer for layer in range(layers) if layer % config.stride == config.stride - 1]
        kinds: tuple[Branch, ...] = ("attention", "mlp") if config.skip_modules == "both" else (config.skip_modules,)
        self.skipping = {Site(layer, kind) for layer in active for kind in kinds}
        if not self.skipping:
            raise UsageError(f"GateSkip needs a layer that may skip, got stride={config.stride} with {layers} layers.")
        # The MLP follows attention's decision, so a layer needs both.
        if config.skip_unit == "layer" and config.skip_modules != "both":
            raise UsageError(
                f"skip_unit=layer skips both branches, got skip_modules={config.skip_modules}. Leave one out."
            )
        if semantics == "bench" and config.rule != "code":
            raise UsageError(
                f"bench semantics calibrate their thresholds, got rule={config.rule}. Write "
                f"gateskip[rule={config.rule}]@paper, or leave it out."
            )
        if semantics == "bench":
            self.thresholds = Thresholds(site.number for site in sorted(self.skipping) if self._decides(site))
        if config.compensate == "scale":
            self.fitted = Fitted("scales")

    @property
    def kv_policy(self) -> KVPolicy:
        """As configured, but `recompute` in training, where skipped tokens keep their K,V."""
        if self.training:
            return "recompute"
        return self.config.kv or ("recompute" if self.config.rule == "code" else "copy_below")

    @property
    def eligible_sites(self) -> frozenset[Site]:
        return frozenset(self.skipping)

    @property
    def decides_by_layer(self) -> bool:
        return self.config.skip_unit == "layer"

    @property
    def max_saved_tokens(self) -> float:
        """The share that is skipped if every eligible branch keeps only the smallest budget."""
        return (1.0 - self.dial.minimum) * self._skipping_share

    @property
    def freezes_backbone(self) -> bool:
        """Whether only the gates are trained (`frozen`, an ablation)."""
        return self.config.frozen

    @property
    def skip_share(self) -> float:
        """1 - budget; in training the budget anneals from `budget_start` to `budget_end`."""
        config = self.config
        if self.training:
            return 1.0 - self.annealed(config.budget_start, config.budget_end or self.dial_for(self.target))
        return round(1.0 - self.value, 12)

    def dial_for(self, saved_tokens: float) -> float:
        """The budget at which the eligible branches, each skipping the same share, save that much in total."""
        return max(self.dial.minimum, 1.0 - saved_tokens / self._skipping_share)

    def decide(self, view: SiteView) -> Decision:
        """Scales the branch by gate values [B, S, H or 1], whose mean over channels is a token's score."""
        states = view.normed if self.config.input == "prenorm" else view.hidden
        states = states.detach() if self.config.detach else states
        # Even site numbers are attentions, odd ones MLPs.
        number = view.site.number if self.config.sharing == "separate" else view.site.number % 2
        # In fp32: gates start just below 1, where bf16 has steps of 0.004, and most scores would be equal.
        gate = torch.sigmoid(self.gates[number](states.float()))
        if view.call.training:
            view.record(gate=gate)
        # Who skips passes no gradient: gates learn from the branch that they scale, and from the penalty.
        keep = self._keep(view, gate.detach().mean(dim=-1)) if view.site in self.skipping else None
        placement = self.config.placement
        decision = Decision(keep, gate if placement != "before" else None, gate if placement != "after" else None)
        return decision if self.fitted is None else compensated(view, decision, self.fitted)

    def fit(self, text: HeldOutText) -> None:
        assert self.fitted is not None
        self.fitted.set(scales=site_scales(text))

    def _keep(self, view: SiteView, scores: Tensor) -> Tensor | None:
        """Keep mask of one site; `None` keeps all. With `skip_unit=layer` the MLP follows attention's decision."""
        if not self._decides(view.site):
            return view.call.scratch.pop("attention_keep", None)
        call = view.call
        if call.training:
            keep: Tensor | None = self._training_keep(view, scores)
        elif self.thresholds is not None:
            keep = self.thresholds.keep(view, scores, self.skip_share)
        else:
            keep = _RULES[self._rule](scores, call.valid, self.skip_share)
        if self.config.skip_unit == "layer" and keep is not None:
            view.call.scratch["attention_keep"] = keep
        return keep

    def _training_keep(self, view: SiteView, scores: Tensor) -> Tensor:
        """Keep mask of one site: each sequence ranks its own tokens, those of prompt and answer apart, since each phase
        has its own thresholds. The paper's rules rank all real tokens of the call together.
        """
        call, share = view.call, self.skip_share
        if self._rule != "exact_share":
            return (released_training_keep if self._rule == "code" else paper_quantile_keep)(scores, call.valid, share)
        uniform = uniform_from(call.prompt_counters, draw_key(self.seed, self.step, view.site.number))
        prompts, answers = call.valid & ~call.continuation, call.valid & call.continuation
        keep_prompts = drop_lowest_per_row(scores, prompts, share, uniform)
        return keep_prompts | drop_lowest_per_row(scores, answers, share, uniform)

    @property
    def _rule(self) -> Rule:
        """The configured rule; in `bench` semantics the exact share, which its thresholds approximate."""
        return "exact_share" if self.semantics == "bench" else self.config.rule

    def _decides(self, site: Site) -> bool:
        return self.config.skip_unit == "module" or site.branch == "attention"

    @property
    def _skipping_share(self) -> float:
        return len(self.skipping) / (2 * self.backbone_size[0])

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """Gate sparsity, averaged over branches, real tokens (all tokens with `rule=code`) and channels."""
        budget = 1.0 - self.skip_share
        # Picking real tokens out copies the gates, so it is left out where there is no padding.
        padded = self._rule != "code" and len(call.real) < call.valid.numel()
        real = (call.of_real(gate) if padded else gate.flatten(0, 1) for gate in call.records["gate"])
        per_branch = [sparsity(call.whole(gate), self.config.loss, budget) for gate in real]
        return {"sparsity": (self.config.penalty_weight, torch.stack(per_branch).mean())}

    @classmethod
    def initial_change(cls, config: MethodConfig) -> InitialChange | None:
        """Gates start close to 1, but not at 1."""
        reason = "gates start at sigmoid(5) = 0.9933, and spread around it by weights of 0.01 (section 3.4)"
        if isinstance(config, GateSkipConfig) and config.input == "residual":
            longer = (
                "read as it is (eq. 2), the residual stream of a real model has norms of hundreds, and 20,000 at the "
                "first token, so that gates start at 0 or 1: little is left of the pretrained model"
            )
            return InitialChange(f"{reason}; {longer}", bound=1.5)
        return InitialChange(reason, bound=0.05)

    @classmethod
    def starts_from(cls, spec: MethodSpec) -> MethodSpec | None:
        """The fine-tuned dense model if the backbone is frozen, since it cannot learn the answer template then."""
        config: GateSkipConfig = cls.parse_config(spec)
        return MethodSpec("dense") if config.frozen else None

    @classmethod
    def training_spec(cls, config: GateSkipConfig, spec: MethodSpec) -> MethodSpec:
        """Leaves out KV policy and compensation, which matter at inference; `bench` and `exact_share` train alike."""
        at_inference = ("kv", "compensate")
        params = tuple(pair for pair in spec.params if pair[0] not in at_inference)
        if spec.semantics == "paper" and config.rule != "exact_share":
            return MethodSpec(spec.name, params, spec.semantics)
        return MethodSpec(spec.name, tuple(pair for pair in params if pair[0] != "rule"))


def released_keep(scores: Tensor, active: Tensor, q: float) -> Tensor:
    """Keep mask [B, S] of the released code at inference: a token skips if its score is at most the quantile at q.

    The quantile is `torch.quantile`'s, with linear interpolation, of the call's active scores. No token skips if q = 0,
    if one token is active, or if all scores are 1.
    """
    scores = scores.float()
    if q <= 0.0:
        return active
    # Computes what `torch.quantile` would, which needs the active scores picked out and thus makes the host wait.
    ordered, count = scores.masked_fill(~active, torch.inf).flatten().sort().values, active.sum()
    place = scores.new_full((1,), q) * (count - 1).clamp(min=0)
    low, high = (ordered.index_select(0, at.long()) for at in (place.floor(), place.ceil()))
    threshold = torch.lerp(low, high, place - place.floor())
    nobody = (count <= 1) | ((scores == 1.0) | ~active).all()
    return active & ((scores > threshold) | nobody)


def released_training_keep(scores: Tensor, active: Tensor, q: float) -> Tensor:
    """Keep mask of the released code in training: a token skips if its score is at most the one at place floor(q n).

    Places count from 0 in the ascending order of the n active scores, of which there is at least one. If all scores
    differ, floor(q n) + 1 tokens are dropped, at most n. A score of 1 never skips.
    """
    scores = scores.float()
    ordered = scores.masked_fill(~active, torch.inf).flatten().sort().values
    count = active.sum()
    place = torch.minimum((q * count.double() + 1e-9).floor().long(), count - 1)
    threshold = ordered.index_select(0, place[None])
    # A score of 1 would not exceed a threshold of 1, but is to stay, so the cut is then 0.999 (released code).
    return active & (scores > threshold.where(threshold != 1.0, 0.999))


_RULES: Mapping[Rule, Callable[[Tensor, Tensor, float], Tensor]] = {
    "code": released_keep,
    "text": paper_quantile_keep,
    "exact_share": drop_lowest,
}


def sparsity(gate: Tensor, loss: Literal["l2", "l1", "kl_layer", "kl_element"], budget: float) -> Tensor:
    """Penalty on one branch's gate values [N, H or 1]; the KL forms measure the distance from Bernoulli(budget)."""
    if loss == "l2":
        return gate.square().mean()
    if loss == "l1":
        return gate.abs().mean()
    return bernoulli_kl(gate.mean() if loss == "kl_layer" else gate, budget).mean()


def bernoulli_kl(gate: Tensor, budget: float) -> Tensor:
    """KL(Bernoulli(gate) || Bernoulli(budget)), element by element; both are clamped away from 0 and 1."""
    p, q = gate.clamp(1e-6, 1 - 1e-6), min(max(budget, 1e-6), 1 - 1e-6)
    return p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()


def _gate(hidden: int, outputs: int, architecture: Literal["linear", "mlp"]) -> nn.Module:
    if architecture == "linear":
        return initialised_linear(hidden, outputs, std=GATE_STD, bias=GATE_BIAS)
    inner = initialised_linear(hidden, 2 * hidden, std=GATE_STD, bias=0.0)
    return nn.Sequential(inner, nn.SiLU(), initialised_linear(2 * hidden, outputs, std=GATE_STD, bias=GATE_BIAS))
