r"""Prompt router: which layers an answer runs is decided once, from its prompt, and holds for all of its tokens.

Idea: what a layer is worth differs more from task to task than from token to token. A small router per layer reads the
prompt's states once; the prompt runs in full, and the layers that the routers close are left out for the whole answer.
A row of a batch then does the same at every step, and no later token misses keys and values that an earlier one left
out.

Papers: "FiRST: Finetuning Router-Selective Transformers for Input-Adaptive Latency Reduction",
    https://arxiv.org/abs/2410.12513, and for `labels=search` "Dr.LLM: Dynamic Layer Routing in LLMs",
    https://arxiv.org/abs/2510.12773, without its repeated layers.
Equations: with $\bar h_l$ the mean over the prompt's tokens of the residual stream before layer $l$, each token divided
    by its root mean square, and $r = W \bar h_l + b$: the answer runs the layer iff $r_{\mathrm{execute}} \ge
    r_{\mathrm{skip}}$, in training with Gumbel noise, hard forward and soft backward; loss $\mathrm{CE} + \lambda \, |
    (1 - s) - \bar e |$ with $\bar e$ the executed share over all layers and all real answer tokens. The keys and values
    of an answer are not needed in the layers that it skips (`evict`). `labels=search`: $r$ is the mean over 8 windows
    of the prompt of $W_2 \, \mathrm{GELU}(W_1 \bar h)$, 128 wide; the backbone is frozen, and the routers learn the
    labels $y_l$ of a search for the shortest path with which the answer is right, by $-\frac{1}{L} \sum_l \alpha_y (1 -
    p_y)^\gamma \ln p_y$ with $\gamma = 2$, $\alpha_c \propto \frac{1 - \beta}{1 - \beta^{n_c}}$, $\beta = 0.999$.

From FiRST: a router per layer that reads the prompt, layers skipped only in decoding, consistency with a KV cache, and
a model fine-tuned along with it (its abstract says no more, and no code was found). Ours: averaging the states before a
linear router, the sampling, the penalty (SkipGPT's, with its weight), and the dial, an offset on the execute logit.

Deviations: all tokens enter the mean at the same length (Dr.LLM averages the raw stream; what FiRST does is not known).
On real models the raw mean is nearly the first token's state, whose norm is about 150 times the others'. The backbone
is trained as a whole instead of with LoRA, as for all methods here. Routers start biased towards execute (+5), and the
target falls from 1 to 1 - s on the schedule all methods share. The target is a share of answers, since prompts run in
full: over a whole text less is saved, and a saving larger than answers can give is not reached. A text without a prompt
is decided by its first token. When a text is scored, its context is the prompt.

Deviations of `labels=search`: prompts run in full (in Dr.LLM they follow the path as well). Labels are searched for on
each step's training batch, not once beforehand. An answer is right if each of its tokens is the most likely one, that
is, if greedy decoding would generate it. A row without a right path is labelled to execute everything (Dr.LLM leaves
such a row out). The counts $n_c$ are those of a batch (in Dr.LLM's code they are constants). There is no target: the
labels determine what is saved. Dr.LLM's dial mixes the router's distribution with fixed ones; ours orders prompts and
layers in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from adaptive_bench.method import (
    EXECUTE_ALL,
    Backbone,
    Decision,
    ForwardCall,
    KVPolicy,
    LogitRouter,
    MethodConfig,
    MethodSpec,
    SearchRange,
    Semantics,
    Site,
    SiteView,
    known_outputs,
    prompt_outputs,
    sampled_choice,
)

from .branch_routers import EXECUTE, SKIP, biased_linear, target_distance
from .path_search import shortest_right_paths

VERSION = 3  # in 2 routers read the raw residual stream; in 1 answers alone had to reach a share of all tokens
SEARCH_WINDOWS, SEARCH_WIDTH = 8, 128
GAMMA, BETA = 2.0, 0.999


class PromptRouterConfig(MethodConfig):
    companions: ClassVar[Mapping[str, str]] = {"labels=search": "simulations=8"}  # few layers have few paths
    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "penalty_weight": SearchRange.parse("log:2:200", source="a decade around SkipGPT's 20"),
        "temperature": SearchRange.parse("log:0.3:3", source="our guess around the default"),
    }
    labels: Literal["end_to_end", "search"] = Field(
        "end_to_end", description="what routers learn from: the answer's loss (FiRST), or a search's paths (Dr.LLM)"
    )
    target_parameter: ClassVar[str] = "sparsity"
    sparsity: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="share s of the token-branches of answers to skip at the end of training; default: set by the "
        "run's target saving",
    )
    penalty_weight: float = Field(20.0, ge=0, description="weight of the distance to the target (ours, as in SkipGPT)")
    temperature: float = Field(1.0, gt=0, description="temperature of the Gumbel-Softmax (ours)")
    simulations: int = Field(50, ge=1, description="paths that the search tries for each row (Dr.LLM)")

    def on_model(self, layers: int) -> dict[str, Any]:
        unread = {"simulations"} if self.labels == "end_to_end" else {"sparsity", "penalty_weight", "temperature"}
        return {name: value for name, value in super().on_model(layers).items() if name not in unread}


class PromptRouter(LogitRouter):
    """Chooses the layers of a whole answer; the dial is an offset on the execute logit."""

    supports_data_parallel = True
    trains_alike = True
    Config: ClassVar[type[MethodConfig]] = PromptRouterConfig
    spares = False
    unit = "layer"
    once_per_prompt = True
    kv_policy: KVPolicy = "evict"
    solves_dial = True
    config: PromptRouterConfig

    def __init__(self, config: PromptRouterConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers, hidden = self.backbone_size
        new = searched_router if config.labels == "search" else biased_linear
        self.routers = nn.ModuleList(new(hidden) for _ in range(layers))

    @property
    def freezes_backbone(self) -> bool:
        """Whether labels are searched for: they hold for the model as it is, which must then not change."""
        return self.config.labels == "search"

    def decide_ahead(self, call: ForwardCall) -> Sequence[Decision] | None:
        """All decisions once the prompt has been read; they do not depend on the states of later tokens."""
        if call.training or call.reads_prompt:
            return None
        layers = range(self.backbone_size[0])
        return [self._decision(call, known_outputs(call.session, Site(layer, "layer"))) for layer in layers]

    def decide(self, view: SiteView) -> Decision:
        """Samples one choice per row with a soft gradient while training; takes the larger logit otherwise."""
        if view.call.ahead is not None:
            return super().decide(view)
        layer = view.site.layer
        windows = SEARCH_WINDOWS if self.config.labels == "search" else 1
        logits = prompt_outputs(view, self.routers[layer], windows=windows, states=view.levelled)
        if not view.call.training:
            return self._decision(view.call, logits)
        if self.config.labels == "search":
            view.record(routed=logits)
            return EXECUTE_ALL
        heat, counters = self.config.temperature, view.call.prompt_counters
        chosen = sampled_choice(self, view, logits, chosen=EXECUTE, temperature=heat, place=layer, counters=counters)
        # One choice a row, [B]; the prompt that it was made from runs everything.
        executed = torch.where(view.call.follows, chosen[:, None], 1.0)
        view.record(executed=executed)
        return Decision(scale=executed[..., None])

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """Distance between the target and the executed share of answers, averaged over layers; or the labels' loss."""
        if self.config.labels == "search":
            logits = call.whole(torch.stack(call.records["routed"], dim=1))
            return {"labels": (1.0, focal_loss(logits, call.whole(self._labels(call))))}
        end = 1.0 - (self.target if self.config.sparsity is None else self.config.sparsity)
        answers = call.whole(call.of_real(call.follows.float()))  # weights: picking tokens out waits for the device
        executed = torch.stack([call.whole(call.of_real(layer)) for layer in call.records["executed"]])
        shares = (executed * answers).sum(dim=1) / answers.sum().clamp(min=1.0)
        distance = target_distance(shares, self.annealed(1.0, end))
        return {"target": (self.config.penalty_weight, distance)}

    def main_loss_weight(self, call: ForwardCall) -> float:
        """0 if labels are searched for, since they replace the cross entropy; else 1."""
        return 0.0 if self.config.labels == "search" else 1.0

    def _labels(self, call: ForwardCall) -> Tensor:
        """[B, L] the side (execute or skip) that each router should take, by each row's shortest right path."""
        # A seed for each row's search that depends on its prompt, not on its place in the batch.
        keys = [(self.seed * 1_000_003 + self.step) ^ counter for counter in call.prompt_counters.tolist()]
        layers = self.backbone_size[0]
        keep, _ = shortest_right_paths(partial(answered_right, call), layers, keys, self.config.simulations)
        return torch.where(keep, EXECUTE, SKIP).to(call.valid.device)

    def _decision(self, call: ForwardCall, logits: Tensor) -> Decision:
        """The decision for all tokens of a layer, from the logits [B, 2] of their prompts."""
        if self.value == self.dial.skip_nothing:
            return EXECUTE_ALL
        # [B, 1] of prompts against [B, S] of tokens.
        return Decision(keep=self.runs(logits)[:, None] | ~call.follows)

    @classmethod
    def takes_target(cls, config: PromptRouterConfig) -> bool:
        """Whether the executed share is trained towards the run's target; searched labels have no target."""
        return super().takes_target(config) and config.labels == "end_to_end"

    @classmethod
    def starts_from(cls, spec: MethodSpec) -> MethodSpec | None:
        """The fine-tuned dense model with `labels=search`: a frozen backbone cannot learn the answer template."""
        return MethodSpec("dense") if dict(spec.params).get("labels") == "search" else None


def searched_router(inputs: int) -> nn.Module:
    """H -> 128 -> 2 with a GELU; weights start as Xavier's, biases at 0 (Dr.LLM)."""
    maps = nn.Linear(inputs, SEARCH_WIDTH), nn.Linear(SEARCH_WIDTH, 2)
    for one in maps:
        nn.init.xavier_uniform_(one.weight)
        nn.init.zeros_(one.bias)
    return nn.Sequential(maps[0], nn.GELU(approximate="tanh"), maps[1])


def answered_right(call: ForwardCall, keep: Tensor) -> Tensor:
    """[B] whether each label of a row is the likeliest token if the tokens after its prompt run only the layers of
    `keep` [B, L]. A row without labels counts as wrong.
    """
    assert call.again is not None and call.labels is not None
    paths = keep.to(call.valid.device)
    # The same batch once more, each row with a path of its own.
    hidden = call.again([Decision(keep=runs[:, None] | ~call.follows) for runs in paths.unbind(dim=1)])
    with torch.no_grad():
        found = call.backbone.head(call.backbone.final_norm(call.of_written(hidden))).argmax(dim=-1)
    wrong = torch.zeros(call.writes.numel(), dtype=torch.bool, device=found.device)
    # The label of the token at place i is the token at i + 1, which it writes.
    wrong = wrong.index_copy(0, call.written_from, found != call.labels.flatten()[call.written_from + 1])
    return ~wrong.view_as(call.writes).any(dim=1) & call.writes.any(dim=1)


def focal_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean of alpha_y (1 - p_y)^gamma (-ln p_y) for logits [B, L, 2] and labels [B, L]."""
    weights = class_weights(torch.stack([(labels == side).sum() for side in (EXECUTE, SKIP)]))
    chosen = logits.log_softmax(dim=-1).gather(-1, labels[..., None])[..., 0]
    return (weights[labels] * focal(chosen)).mean()


def focal(log_probabilities: Tensor) -> Tensor:
    """(1 - p)^gamma (-ln p), computed from ln p."""
    return -((1.0 - log_probabilities.exp()) ** GAMMA) * log_probabilities


def class_weights(counts: Tensor) -> Tensor:
    """alpha [C], with a mean of 1, for class counts [C]; a class without labels counts as having one."""
    weights = (1.0 - BETA) / (1.0 - BETA ** counts.clamp(min=1).double())
    return (weights / weights.mean()).float()
