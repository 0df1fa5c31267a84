"""Static depth: every token skips the same evenly spaced layers. The control for everything that claims to adapt.

Idea: no decision at all. If a method cannot beat leaving out layers, its routing is worth nothing.
Source: the static controls of methods such as Unified Layer Skipping; ShortGPT (arXiv 2403.03853) picks layers by
influence instead. Equations: of N skipped layers number n is 1 + floor((n + 1/2) (L - 2) / N), all counted from 0; the
last and then the first layer go only when no other is left. Deviations: none; nothing is stored for a layer that
never runs. With `trained` the layers are left out in training as well: more and more of them, up to the run's target
saving; a run with several targets trains it for each number of layers up to the first that saves the largest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

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


class StaticDepthConfig(MethodConfig):
    """Parameters of static depth."""

    trained: bool = Field(False, description="leave layers out in training as well, on the schedule of all methods")


class StaticDepth(Method):
    """Leaves out a number of layers, the dial."""

    supports_data_parallel = True
    adapts = False
    skips_whole_layers = True
    Config: ClassVar[type[MethodConfig]] = StaticDepthConfig
    unit = "layer"
    config: StaticDepthConfig

    @property
    def dial(self) -> DialSpec:
        """Layers left out."""
        return DialSpec("skipped_layers", 0, self.backbone_size[0], 0)

    @property
    def kv_policy(self) -> KVPolicy:
        """A layer that never runs has no keys and values; in training it takes nobody else's away."""
        return "recompute" if self.training else "evict"

    def dial_for(self, saved_tokens: float) -> float:
        """The nearest number of layers."""
        return round(saved_tokens * self.backbone_size[0])

    def skipped_layers(self) -> set[int]:
        """The layers left out at the current dial, or at the current step of training."""
        layers = self.backbone_size[0]
        skipped = round(self.annealed(0, self.dial_for(self.target)) if self.training else self.value)
        inner = max(0, layers - 2)
        spread = min(skipped, inner)
        chosen = {1 + int((number + 0.5) * inner / spread) for number in range(spread)}
        return chosen | set([layers - 1, 0][: skipped - spread])

    def decide_ahead(self, call: ForwardCall) -> Sequence[Decision]:
        """Nobody or everybody."""
        if self.training and not self.config.trained:
            return [EXECUTE_ALL] * self.backbone_size[0]
        skipped, nobody = self.skipped_layers(), Decision.skip_all(call.valid)
        return [nobody if layer in skipped else EXECUTE_ALL for layer in range(self.backbone_size[0])]

    @classmethod
    def takes_target(cls, config: MethodConfig) -> bool:
        """As many layers as come closest to it."""
        assert isinstance(config, StaticDepthConfig)
        return config.trained

    @classmethod
    def training_spec(cls, config: MethodConfig, spec: MethodSpec) -> MethodSpec:
        """Untrained: the dense model."""
        assert isinstance(config, StaticDepthConfig)
        return MethodSpec(spec.name, spec.params) if config.trained else MethodSpec("dense")
