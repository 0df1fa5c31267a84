"""FREE: one early exit, chosen by confidence at a shallow layer, trained so that the shallow model imitates the deep
one.

Idea: the first L_S layers are a model of their own. A token that is confident there is written at once; the others
go on through the deep layers. With `kv=defer` tokens that left wait and pass the deep layers together with the next
one that stays, so their deep K,V are exact (synchronized parallel decoding: it saves passes over the weights, hardly
any FLOPs). With `kv=recompute` the deep layers project K,V from the exit state instead, which saves FLOPs.

Paper: "Fast and Robust Early-Exiting Framework for Autoregressive Language Models with Synchronized Parallel Decoding",
https://arxiv.org/abs/2310.05424.
Equations: CE (L_S CE_S + L CE_L) / (L_S + L); + alpha KD, alpha 0.5, KD = mean squared error between normed hidden
states, the deep side detached, matched dynamically: from the deepest of evenly spaced teacher layers downwards, each
takes the closest student layer strictly below the one before (section 3.2); exit where top-1 minus top-2 probability
exceeds the threshold (section 3.3).

Deviations: decoder-only; prompts run at full depth, and distillation is over the tokens that write the answer (theirs
is over the decoder's tokens, which are these; the prompt is the encoder's there). `confidence=state` (cosine of
neighbouring states) is not in the paper, which other comparisons call FREE all the same. The threshold is the dial;
`beta_mixture_threshold` gives the paper's adaptive one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from scipy import stats
from torch import Tensor
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
    SiteView,
    UsageError,
    leaving_tokens,
)

NEVER = 1.01  # no confidence exceeds 1
GRID = np.linspace(0.3, 0.9, 10)
POSTERIOR_CUT = 0.4


class FREEConfig(MethodConfig):
    """Parameters of FREE."""

    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "distillation_weight": SearchRange.parse("linear:0:1", source="alpha is a share; released scripts 0.5"),
    }
    shallow_layers: int = Field(
        0, ge=0, examples=[3], description="L_S; 0 means a quarter of the layers, at least 2 (paper: 6 of 24)"
    )
    distillation_weight: float = Field(0.5, ge=0, description="alpha (released scripts)")
    confidence: Literal["softmax", "state"] = Field(
        "softmax", description="confidence measure; `state` is not FREE's own"
    )
    kv: Literal["recompute", "defer"] | None = Field(None, description="default: recompute in bench, defer in paper")


class FREE(Method):
    """Shallow-deep early exit; the dial is the confidence threshold."""

    Config: ClassVar[type[MethodConfig]] = FREEConfig
    unit = "layer"
    solves_dial = True
    wants_layer_states = True
    config: FREEConfig

    def __init__(self, config: FREEConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers = backbone.num_layers
        self.shallow = config.shallow_layers or max(2, round(layers / 4))
        if not 2 <= self.shallow < layers:
            raise UsageError(f"FREE needs 2 <= shallow_layers < {layers}, got {self.shallow}.")

    @property
    def dial(self) -> DialSpec:
        """Confidence threshold; above 1 nobody exits."""
        return DialSpec("threshold", -1.0, NEVER, NEVER)

    @property
    def kv_policy(self) -> KVPolicy:
        """State copy or waiting; training runs everything."""
        if self.training:
            return "recompute"
        return self.config.kv or ("defer" if self.semantics == "paper" else "recompute")

    @property
    def defer_layer(self) -> int:
        """The exit."""
        return self.shallow

    @property
    def max_saved_tokens(self) -> float:
        """Everything above the exit."""
        return 1.0 - self.shallow / self.backbone_size[0]

    def decide(self, view: SiteView) -> Decision:
        """At the exit, confident answer tokens leave; above it they stay away."""
        call, layer = view.call, view.site.layer
        if call.training or layer < self.shallow - 1:
            return EXECUTE_ALL
        if layer == self.shallow - 1:
            call.scratch["before_exit"] = view.hidden
            return EXECUTE_ALL
        if layer == self.shallow:
            call.scratch["stays"] = call.valid & ~self._confident(view)
        return Decision(keep=call.scratch["stays"])

    def _confident(self, view: SiteView) -> Tensor:
        candidates = view.call.writing
        previous = view.call.scratch["before_exit"] if self.config.confidence == "state" else None
        return leaving_tokens(view, candidates, previous, lambda sureness, _: sureness > self.value)

    def main_loss_weight(self, call: ForwardCall) -> float:
        """L / (L_S + L)."""
        return self.backbone_size[0] / (self.shallow + self.backbone_size[0])

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """Cross entropy of the shallow model, and distillation of the deep one into it where the answer is written."""
        assert call.layer_states is not None
        normed = [call.backbone.final_norm(state) for state in call.layer_states]
        layers = self.backbone_size[0]
        return {
            "shallow": (
                self.shallow / (self.shallow + layers),
                call.cross_entropy(call.layer_states[self.shallow - 1]),
            ),
            "distillation": (
                self.config.distillation_weight,
                dynamic_distillation(normed[: self.shallow], [normed[i] for i in self.teachers()], call.writes),
            ),
        }

    def teachers(self) -> list[int]:
        """L_S evenly spaced layers, the last one included (24 layers, L_S 6: 3, 7, 11, 15, 19, 23)."""
        layers = self.backbone_size[0]
        return [(number + 1) * layers // self.shallow - 1 for number in range(self.shallow)]

    @classmethod
    def training_spec(cls, config: MethodConfig, spec: MethodSpec) -> MethodSpec:
        """Confidence and KV policy matter at inference only."""
        return MethodSpec(spec.name, tuple(pair for pair in spec.params if pair[0] not in ("kv", "confidence")))


def dynamic_distillation(students: Sequence[Tensor], teachers: Sequence[Tensor], chosen: Tensor) -> Tensor:
    """Mean squared error of matched layers (`align`) over chosen tokens [B, S]; teachers get no gradient.

    Args:
        students, teachers: States [B, S, H], shallow to deep.
    """
    errors = [
        torch.stack([functional.mse_loss(student[chosen], teacher.detach()[chosen]) for student in students])
        for teacher in teachers
    ]
    pairs = align([row.tolist() for row in errors])
    return torch.stack([errors[teacher][student] for teacher, student in pairs]).mean()


def align(errors: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Match teachers, deepest first, each to the closest student strictly below the one before.

    Args:
        errors: errors[teacher][student].

    Returns:
        Pairs (teacher, student), strictly rising in both; teachers left without a student have no pair.
    """
    pairs: list[tuple[int, int]] = []
    limit = len(errors[0])
    for teacher in reversed(range(len(errors))):
        if limit == 0:
            break
        student = min(range(limit), key=lambda index: errors[teacher][index])
        pairs.append((teacher, student))
        limit = student
    return pairs[::-1]


def beta_mixture_threshold(confidences: Sequence[float], agrees: Sequence[bool]) -> float:
    """The adaptive threshold (section 3.4): lowest of 10 values in [0.3, 0.9] where agreement is likely enough.

    Confidences of agreeing and of disagreeing tokens follow a Beta distribution each (fitted by moments); the
    threshold is the lowest grid value whose posterior probability of agreement exceeds 0.4, or the highest value if
    none does.
    """
    values, labels = np.clip(np.asarray(confidences, float), 1e-3, 1 - 1e-3), np.asarray(agrees, bool)
    if not labels.any() or labels.all():
        return float(GRID[0] if labels.any() else GRID[-1])
    agree = labels.mean() * _beta(values[labels]).pdf(GRID)
    differ = (1 - labels.mean()) * _beta(values[~labels]).pdf(GRID)
    likely = agree / np.maximum(agree + differ, 1e-12) > POSTERIOR_CUT
    return float(GRID[np.argmax(likely)] if likely.any() else GRID[-1])


def _beta(values: np.ndarray) -> stats.rv_continuous:
    mean, variance = values.mean(), max(values.var(), 1e-4)
    scale = max(mean * (1 - mean) / variance - 1, 0.1)
    return stats.beta(mean * scale, (1 - mean) * scale)
