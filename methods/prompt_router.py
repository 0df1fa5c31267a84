r"""Prompt router: which layers an answer runs is decided once, from its prompt, and holds for every token of it.

Idea: what a layer is worth differs more from task to task than from token to token. A small router per layer reads the
prompt's states once; the prompt runs in full, and the layers it closes are left out of the whole answer. A row of a
batch then does the same at every step, and no later token misses keys and values that an earlier one left out.

Paper: "FiRST: Finetuning Router-Selective Transformers for Input-Adaptive Latency Reduction",
    https://arxiv.org/abs/2410.12513.
Equations: with $\bar h_l$ the mean over the prompt's tokens of the residual stream before layer $l$ and
    $r = W \bar h_l + b$: the answer runs the layer iff $r_{\mathrm{execute}} \ge r_{\mathrm{skip}}$, in training with
    Gumbel noise, hard forward and soft backward; loss $\mathrm{CE} + \lambda \, | (1 - s) - \bar e |$ with $\bar e$ the
    executed share of all layers and real tokens, those of prompts included. Nobody misses keys and values of answers in
    layers that they skip (`evict`).

What is FiRST's: a router per layer, read off the prompt, layers skipped in decoding alone, consistent with a KV cache,
and a model fine-tuned along with it (its abstract says no more, and no code was found). Ours: that states are averaged
before a linear router, the sampling, the penalty (that of SkipGPT, with its weight), and the dial, an offset on the
execute logit.

Deviations: the backbone is trained as a whole instead of by LoRA, as with all methods here. Routers start biased
towards execute (+5), and the target falls from 1 to 1 - s on the schedule all methods share; a saving that answers
cannot give alone is not reached. A text without a prompt is decided on by its first token. Where a text is scored, its
context is the prompt. Prompts save nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

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
    known_outputs,
    prompt_outputs,
    sampled_choice,
)

from .branch_routers import EXECUTE, SKIP, biased_linear, target_distance


class PromptRouterConfig(MethodConfig):
    """Parameters of the prompt router."""

    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "penalty_weight": SearchRange.parse("log:2:200", source="a decade around SkipGPT's 20"),
        "temperature": SearchRange.parse("log:0.3:3", source="our guess around the default"),
    }
    sparsity: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="share of token-branches to skip in the end, s, prompts included; default: what the run's target "
        "saving asks for",
    )
    penalty_weight: float = Field(20.0, ge=0, description="weight of the distance to the target (ours, as in SkipGPT)")
    temperature: float = Field(1.0, gt=0, description="temperature of the Gumbel-Softmax (ours)")


class PromptRouter(Method):
    """Routes whole answers; the dial is an offset on the execute logit."""

    supports_data_parallel = True
    Config: ClassVar[type[MethodConfig]] = PromptRouterConfig
    unit = "layer"
    once_per_prompt = True
    solves_dial = True
    config: PromptRouterConfig

    def __init__(self, config: PromptRouterConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers, hidden = self.backbone_size
        self.routers = nn.ModuleList(biased_linear(hidden) for _ in range(layers))

    @property
    def dial(self) -> DialSpec:
        """Offset on the execute logit; at its largest value everything executes, whatever the logits."""
        return DialSpec("execute_offset", -50.0, 50.0, 50.0)

    @property
    def kv_policy(self) -> KVPolicy:
        """An answer that skips a layer never attends there."""
        return "evict"

    def decide_ahead(self, call: ForwardCall) -> Sequence[Decision] | None:
        """Once prompts were read all is known: nothing hangs on the states of what is written."""
        if call.training or call.reads_prompt:
            return None
        layers = range(self.backbone_size[0])
        return [self._decision(call, known_outputs(call.session, Site(layer, "layer"))) for layer in layers]

    def decide(self, view: SiteView) -> Decision:
        """A sampled choice per row with a soft gradient while training; the larger logit otherwise."""
        if view.call.ahead is not None:
            return super().decide(view)
        layer = view.site.layer
        logits = prompt_outputs(view, self.routers[layer])
        if not view.call.training:
            return self._decision(view.call, logits)
        heat, counters = self.config.temperature, view.call.prompt_counters
        chosen = sampled_choice(self, view, logits, chosen=EXECUTE, temperature=heat, place=layer, counters=counters)
        executed = torch.where(view.call.follows, chosen[:, None], 1.0)
        view.record(executed=executed)
        return Decision(scale=executed[..., None])

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """Distance of the executed share of real tokens, averaged over all layers, to the target."""
        end = 1.0 - (self.target if self.config.sparsity is None else self.config.sparsity)
        shares = [call.whole(call.of_real(executed)).mean() for executed in call.records["executed"]]
        distance = target_distance(torch.stack(shares), self.annealed(1.0, end))
        return {"target": (self.config.penalty_weight, distance)}

    def _decision(self, call: ForwardCall, logits: Tensor) -> Decision:
        """Of all tokens, from the logits [B, 2] of their prompts."""
        if self.value == self.dial.skip_nothing:
            return EXECUTE_ALL
        runs = logits[:, EXECUTE] + self.value >= logits[:, SKIP]
        return Decision(keep=runs[:, None] | ~call.follows)

    @classmethod
    def takes_target(cls, config: MethodConfig) -> bool:
        """The executed share falls to what the target asks for."""
        assert isinstance(config, PromptRouterConfig)
        return config.sparsity is None

    @classmethod
    def training_spec(cls, config: MethodConfig, spec: MethodSpec) -> MethodSpec:
        """Both semantics are the same."""
        return MethodSpec(spec.name, spec.params)
