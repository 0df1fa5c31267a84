"""Static depth: every token skips the same evenly spaced layers. The control for everything that claims to adapt.

Idea: no decision at all. If a method cannot beat leaving out layers, its routing is worth nothing.
Source: the static controls of methods such as Unified Layer Skipping; ShortGPT (arXiv 2403.03853) picks layers by
influence instead. Equations: of N skipped layers number n is 1 + floor((n + 1/2) (L - 2) / N), all counted from 0; the
last and then the first layer go only when no other is left. Deviations: none; nothing is stored for a layer that
never runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch

from adaptive_bench.method import (
    EXECUTE_ALL,
    Decision,
    DialSpec,
    ForwardCall,
    KVPolicy,
    Method,
    MethodConfig,
    MethodSpec,
)


class StaticDepth(Method):
    """Leaves out a number of layers, the dial."""

    Config: ClassVar[type[MethodConfig]] = MethodConfig
    unit = "layer"

    @property
    def dial(self) -> DialSpec:
        """Layers left out."""
        return DialSpec("skipped_layers", 0, self.backbone_size[0], 0)

    @property
    def kv_policy(self) -> KVPolicy:
        """A layer that never runs has no keys and values."""
        return "evict"

    def dial_for(self, saved_tokens: float) -> float:
        """The nearest number of layers."""
        return round(saved_tokens * self.backbone_size[0])

    def skipped_layers(self) -> set[int]:
        """The layers left out at the current dial."""
        layers, skipped = self.backbone_size[0], round(self.value)
        inner = max(0, layers - 2)
        spread = min(skipped, inner)
        chosen = {1 + int((number + 0.5) * inner / spread) for number in range(spread)}
        return chosen | set([layers - 1, 0][: skipped - spread])

    def decide_ahead(self, call: ForwardCall) -> Sequence[Decision]:
        """Nobody or everybody."""
        skipped, nobody = self.skipped_layers(), Decision(keep=torch.zeros_like(call.valid))
        return [nobody if layer in skipped else EXECUTE_ALL for layer in range(self.backbone_size[0])]

    @classmethod
    def training_spec(cls, config: MethodConfig, spec: MethodSpec) -> MethodSpec:
        """Untrained: the dense model."""
        return MethodSpec("dense")
