r"""FREE: one early exit, chosen by confidence at a shallow layer, trained so that the shallow model imitates the deep
one.

Idea: the first L_S layers are a model of their own: a token that is confident there is generated at once, and all
others go on through the deep layers. With `kv=defer`, tokens that exited wait and pass through the deep layers together
with the next token that stays, so that their deep K,V are exact (synchronized parallel decoding: it saves passes over
the weights but hardly any FLOPs). With `kv=recompute`, the deep layers project K,V from the exit state instead, which
saves FLOPs.

Paper: "Fast and Robust Early-Exiting Framework for Autoregressive Language Models with Synchronized Parallel Decoding",
https://arxiv.org/abs/2310.05424.
Equations: $(L_S \mathrm{CE}_S + L \, \mathrm{CE}_L) / (L_S + L) + \alpha \mathrm{KD}$, $\alpha = 0.5$, KD = mean
squared error between normed hidden states with the deep side detached, matched dynamically: from the deepest of evenly
spaced teacher layers downwards, each takes the closest student layer strictly below the previous match (section 3.2);
exit where top-1 minus top-2 probability exceeds the threshold (section 3.3); adaptive threshold from a mixture of two
Beta distributions (section 3.4, `adaptive_threshold`).

Deviations: decoder-only; prompts run at full depth, and distillation covers the tokens that generate the answer
(theirs: the decoder's tokens). `confidence=state` (cosine of neighbouring states) is not in the paper, although other
comparisons call it FREE. The exit is probed at every dial value, even at one at which no token exits. The threshold is
the dial. The paper's adaptive threshold is one value of the dial: `adaptive_threshold` fits it to held-out text; theirs
is refitted during generation to all earlier texts. Their optional rollback of exits that the deep layers disagree with,
and their map between the distilled states (off in their scripts), are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from adaptive_bench.method import (
    EXECUTE_ALL,
    Backbone,
    Decision,
    DialSpec,
    EarlyExit,
    ForwardCall,
    KVPolicy,
    MethodConfig,
    SearchRange,
    Semantics,
    SiteView,
    UsageError,
    leaving_tokens,
)

from .beta_mixture import beta_mixture_threshold

VERSION = 2  # in 1 teachers without a student left the mean
NEVER = 1.01  # no confidence exceeds 1


class FREEConfig(MethodConfig):
    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "distillation_weight": SearchRange.parse("linear:0:1", source="a weight; released scripts 0.5"),
        "shallow_layers": SearchRange.parse("int:2:12", source="released code: 4 to 12 of 24 layers; from 2 on (ours)"),
    }
    shallow_layers: int = Field(
        0, ge=0, examples=[3], description="L_S; 0 means a quarter of the layers, at least 2 (paper: 6 of 24)"
    )
    distillation_weight: float = Field(0.5, ge=0, description="alpha (released scripts)")
    confidence: Literal["softmax", "state"] = Field(
        "softmax", description="confidence measure; `state` is not FREE's own"
    )
    kv: Literal["recompute", "defer"] | None = Field(None, description="default: recompute in bench, defer in paper")

    def exit_layer(self, layers: int) -> int:
        """L_S on a model with this number of layers."""
        return self.shallow_layers or max(2, round(layers / 4))

    def on_model(self, layers: int) -> dict[str, Any]:
        return super().on_model(layers) | {"shallow_layers": self.exit_layer(layers)}


class FREE(EarlyExit):
    """Shallow-deep early exit; the dial is the confidence threshold, above 1 no token exits."""

    Config: ClassVar[type[MethodConfig]] = FREEConfig
    solves_dial = True
    trains_alike = True
    at_inference = frozenset({"kv", "confidence"})
    dial = DialSpec("threshold", -1.0, NEVER, NEVER)
    config: FREEConfig

    def __init__(self, config: FREEConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers = backbone.num_layers
        self.shallow = self.first_exit = config.exit_layer(layers)
        if not 2 <= self.shallow < layers:
            raise UsageError(f"FREE needs 2 <= shallow_layers < {layers}, got {self.shallow}.")

    @property
    def kv_policy(self) -> KVPolicy:
        """As configured, by default `defer` in paper and `recompute` in bench semantics; training runs every layer."""
        if self.training:
            return "recompute"
        return self.config.kv or ("defer" if self.semantics == "paper" else "recompute")

    @property
    def defer_layer(self) -> int:
        return self.shallow

    def decide(self, view: SiteView) -> Decision:
        """Confident answer tokens exit before layer L_S and skip it and all layers above it."""
        call, layer = view.call, view.site.layer
        if call.training or layer < self.shallow - 1:
            return EXECUTE_ALL
        # The `state` measure compares the states before and after the last shallow layer.
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

    @torch.no_grad()
    def adaptive_threshold(self, backbone: Backbone, batches: Iterable[Mapping[str, Tensor]]) -> float:
        """The dial value that a Beta mixture chooses (see `beta_mixture_threshold`), fitted to the confidences at the
        exit of the tokens that write an answer, and to whether the exit's prediction agrees with the full model's.

        Args:
            backbone: The trained model to which this method is attached.
            batches: `input_ids`, `attention_mask`, `continuation_mask`, each [B, S]; held-out training text.
        """
        if self.config.confidence != "softmax":
            raise UsageError(
                f"The adaptive threshold is fitted to gaps of probabilities, got confidence={self.config.confidence}. "
                "Use confidence=softmax."
            )
        confidences: list[float] = []
        agrees: list[bool] = []
        for batch in batches:
            ids, valid = batch["input_ids"], batch["attention_mask"].bool()
            output = backbone.model(
                ids,
                attention_mask=valid.long(),
                position_ids=(valid.long().cumsum(dim=1) - 1).clamp(min=0),
                output_hidden_states=True,
                use_cache=False,
            )
            # The token before an answer token writes it, so masks are shifted by one.
            writes = valid[:, :-1] & batch["continuation_mask"][:, 1:].bool() & valid[:, 1:]
            # hidden_states[0] are the embeddings, so this is the stream before layer L_S, which an exit reads.
            state = output.hidden_states[self.shallow][:, :-1][writes]
            shallow, deep = backbone.head(backbone.final_norm(state)), output.logits[:, :-1][writes]
            top = shallow.float().softmax(dim=-1).topk(2, dim=-1).values
            confidences += (top[:, 0] - top[:, 1]).tolist()
            agrees += (shallow.argmax(dim=-1) == deep.argmax(dim=-1)).tolist()
        if not confidences:
            raise UsageError("The adaptive threshold is fitted to tokens that write an answer, got none. Give batches.")
        return beta_mixture_threshold(confidences, agrees)

    def main_loss_weight(self, call: ForwardCall) -> float:
        """L / (L_S + L)."""
        return self.backbone_size[0] / (self.shallow + self.backbone_size[0])

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """Cross entropy of the shallow model, and distillation of the deep one at tokens that write the answer."""
        assert call.layer_states is not None
        normed = [call.of_written(call.backbone.final_norm(state)) for state in call.layer_states]
        layers = self.backbone_size[0]
        return {
            "shallow": (
                self.shallow / (self.shallow + layers),
                call.cross_entropy(call.layer_states[self.shallow - 1]),
            ),
            "distillation": (
                self.config.distillation_weight,
                dynamic_distillation(normed[: self.shallow], [normed[i] for i in self.teachers()]),
            ),
        }

    def teachers(self) -> list[int]:
        """L_S evenly spaced layers, the last one included (24 layers, L_S 6: 3, 7, 11, 15, 19, 23)."""
        layers = self.backbone_size[0]
        return [(number + 1) * layers // self.shallow - 1 for number in range(self.shallow)]


def dynamic_distillation(students: Sequence[Tensor], teachers: Sequence[Tensor]) -> Tensor:
    """Mean squared error of matched layers (`align`), from states [N, H] of the tokens to distil, one tensor per layer,
    shallow to deep; teachers get no gradient.
    """
    errors = torch.stack(
        [torch.stack([functional.mse_loss(student, teacher.detach()) for student in students]) for teacher in teachers]
    )
    return errors.gather(1, align(errors.detach())[:, None]).mean()


def align(errors: Tensor) -> Tensor:
    """The index of each teacher's student [teachers], from errors [teachers, students]: matches each teacher, deepest
    first, to the closest student strictly below the previous match.

    A teacher for which no student is left gets the first student. The result stays on the device.
    """
    students = torch.arange(errors.shape[1], device=errors.device)
    limit = torch.full_like(students[0], errors.shape[1])
    found = []
    # Each match limits the next one. A loop without branches: the host never waits for a value.
    for row in reversed(errors.unbind()):
        limit = row.masked_fill(students >= limit, torch.inf).argmin()  # if all are infinite, the first
        found.append(limit)
    return torch.stack(found[::-1])
