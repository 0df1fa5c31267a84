r"""LayerSkip: layer dropout that rises with depth plus an early-exit loss make one model usable at any depth.

Idea: during training, deeper layers are dropped more often and every layer learns to predict through the shared head.
At inference all tokens exit at one layer E, through the final norm and the head. (Self-speculation, the paper's other
use: `adaptive-bench speculate`.)

Paper: "LayerSkip: Enabling Early Exit Inference and Self-Speculative Decoding", https://arxiv.org/abs/2404.16710.
Equations: dropout $p_l = p_{\max} (\exp(l \ln 2 / (L-1)) - 1)$, per sample (section 4.1); loss
$\sum_l \tilde e(t,l) \mathrm{CE}_l$ with $\tilde e(t,l) = C(t,l) e(l) / \sum_i C(t,i) e(i)$,
$e(l) = s \sum_{i \le l} i$ for $l < L-1$, $e(L-1) = L-1 + s \sum_{i \le L-2} i$, $s$ being `e_scale` (section 4.1);
curricula $C$: rotational (every R-th layer, shifted by one each step) and gradual (from the last layer backwards, one
more every T / 2L steps). Defaults are the paper's for fine-tuning on a task (TOPv2): p_max 0.2, e_scale 1, gradual.

Deviations: none from the paper's formulas (torchtune's example for TOPv2 weights exits linearly, and adds the last one
at T / 2); layers above E store no K,V, since nothing reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from adaptive_bench.method import (
    EXECUTE_ALL,
    Backbone,
    Decision,
    DialSpec,
    EarlyExit,
    ForwardCall,
    InitialChange,
    KVPolicy,
    MethodConfig,
    SearchRange,
    Semantics,
    Site,
    UsageError,
    draw_key,
    uniform_from,
)


class LayerSkipConfig(MethodConfig):
    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "curriculum": SearchRange.parse("choice:gradual|rotational", source="paper: by task, and in pretraining"),
        "dropout": SearchRange.parse("linear:0:0.5", source="paper 0.1 to 0.2; 0 is none"),
        "exit_scale": SearchRange.parse("log:0.05:2", source="paper 0.1 to 1.0"),
        "rotation": SearchRange.parse("int:2:8", source="paper 8 to 39 on 16 to 40 layers; from 2 on (ours)"),
    }
    companions: ClassVar[Mapping[str, str]] = {"curriculum=rotational": "rotation=3"}  # rotation < layers
    dropout: float = Field(0.2, ge=0, lt=1, description="p_max, dropout of the last layer (TOPv2 fine-tuning)")
    exit_scale: float = Field(1.0, ge=0, description="e_scale, weight of early layers (TOPv2 fine-tuning)")
    curriculum: Literal["gradual", "rotational"] = Field("gradual", description="which layers are in the loss")
    rotation: int = Field(8, ge=1, description="R of the rotational curriculum (Llama-3 runs)")

    def on_model(self, layers: int) -> dict[str, Any]:
        found = super().on_model(layers)
        return found if self.curriculum == "rotational" else found | {"rotation": None}


class LayerSkip(EarlyExit):
    """Exits every token at the same layer; the dial is that layer."""

    supports_data_parallel = True
    adapts = False
    Config: ClassVar[type[MethodConfig]] = LayerSkipConfig
    trains_alike = True
    first_exit = 1
    config: LayerSkipConfig

    def __init__(self, config: LayerSkipConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers = backbone.num_layers
        if config.curriculum == "rotational" and not (config.rotation < layers and config.exit_scale > 0):
            raise UsageError(
                f"The rotational curriculum needs rotation < {layers} layers and exit_scale > 0, otherwise some steps "
                f"have no loss (layer 0 weighs nothing); got rotation={config.rotation}, "
                f"exit_scale={config.exit_scale:g}. Lower the rotation, or use curriculum=gradual."
            )

    @property
    def dial(self) -> DialSpec:
        return DialSpec("exit_layer", 1, self.backbone_size[0], self.backbone_size[0])

    @property
    def kv_policy(self) -> KVPolicy:
        """Layers above the exit never run and store no K,V; in training all tokens keep theirs."""
        return "recompute" if self.training else "evict"

    def dial_for(self, saved_tokens: float) -> float:
        """The number of layers that comes closest to the saving."""
        return max(1, round((1.0 - saved_tokens) * self.backbone_size[0]))

    def decide_ahead(self, call: ForwardCall) -> Sequence[Decision]:
        """Drops layers for whole samples while training; otherwise every token stops at the exit layer."""
        layers = range(self.backbone_size[0])
        if call.training:
            return [self._dropped(call, layer) for layer in layers]
        nobody = Decision.skip_all(call.valid)
        return [EXECUTE_ALL if layer < round(self.value) else nobody for layer in layers]

    def _dropped(self, call: ForwardCall, layer: int) -> Decision:
        rate = self.dropout_rate(layer)
        if rate == 0.0:
            return EXECUTE_ALL
        # A row's last prefix hash stands for its whole text, so that a sample drops the same layers in any batch.
        whole_text = call.prefix_hash[:, -1:]
        stays = uniform_from(whole_text, draw_key(self.seed, self.step, Site(layer, "layer").number)) >= rate
        return Decision(keep=stays.expand_as(call.valid))

    def dropout_rate(self, layer: int) -> float:
        """p_l: 0 at the first layer, p_max at the last."""
        last = self.backbone_size[0] - 1
        return self.config.dropout * (math.exp(layer * math.log(2) / last) - 1) if last else 0.0

    def enabled(self) -> list[bool]:
        """C(t, l): which layers are in the loss at the current step."""
        layers = self.backbone_size[0]
        if self.config.curriculum == "rotational":
            return [(layer + self.step) % self.config.rotation == 0 for layer in range(layers)]
        # One more layer from the top every T / 2L steps: all are in from half of the training on.
        count = min(layers, 1 + int((self.step - 1) * 2 * layers / max(1, self.total_steps)))
        return [layer >= layers - count for layer in range(layers)]

    def layer_weights(self) -> list[float]:
        """e~(t, l) of every layer; they sum to 1."""
        layers, scale = self.backbone_size[0], self.config.exit_scale
        raw = [scale * layer * (layer + 1) / 2 for layer in range(layers - 1)]
        # e_scale scales what the last layer sums up from those below, not its own part.
        raw.append(layers - 1 + scale * (layers - 2) * (layers - 1) / 2)
        chosen = [weight * on for weight, on in zip(raw, self.enabled(), strict=True)]
        total = sum(chosen)
        return [weight / total for weight in chosen]

    def main_loss_weight(self, call: ForwardCall) -> float:
        """e~ of the last layer."""
        return self.layer_weights()[-1]

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """Weighted cross entropy at the enabled layers below the last."""
        assert call.layer_states is not None
        # The last layer is left out here, its share is the main loss.
        enabled = [pair for pair in zip(call.layer_states, self.layer_weights()[:-1], strict=False) if pair[1]]
        return {"early_exit": (1.0, call.cross_entropies(*zip(*enabled, strict=True)))} if enabled else {}

    @classmethod
    def initial_change(cls, config: LayerSkipConfig) -> InitialChange | None:
        """Layers are dropped from the first training step on."""
        if not config.dropout:
            return None
        reason = f"layers are dropped from the first training step on, the last one with a rate of {config.dropout:g}"
        return InitialChange(f"{reason} (section 4.1)", bound=0.0, skipped=min(1.0, 1.5 * config.dropout))
