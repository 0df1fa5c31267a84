"""Gates without skipping: GateSkip's gates and penalty, trained while every token executes every branch.

Idea: a gate also scales its branch, and its penalty regularises. This control's score is GateSkip's starting point: the
difference from it to GateSkip is the price of skipping, and the difference from `dense` to it is the price (or gain) of
the gates.
Paper: the equations of `gateskip` at a constant budget of 1 (https://arxiv.org/abs/2510.13876, eq. 2, 4, 5).
Deviations: as for `gateskip`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from adaptive_bench.method import Backbone, CausalityClass, DialSpec, MethodConfig, MethodSpec, Semantics, Site

from .gateskip import GateSkip, GateSkipConfig, Rule


class GatedConfig(MethodConfig):
    """The parameters of GateSkip that do not concern skipping. There is no search space: what saves nothing cannot be
    tuned on what it retains at a saving; it belongs to the GateSkip it is compared with and takes its values.
    """

    shape: Literal["vector", "scalar"] = Field("vector", description="as in `gateskip`")
    loss: Literal["l2", "l1"] = Field("l2", description="as in `gateskip`")
    sparsity_weight: float | None = Field(None, ge=0, description="as in `gateskip`")


class Gated(GateSkip):
    """GateSkip that never skips; its dial does not move."""

    supports_data_parallel = True
    adapts = False
    Config: ClassVar[type[MethodConfig]] = GatedConfig
    paper_class: ClassVar[CausalityClass] = "C0"  # nobody is ranked

    def __init__(self, config: GatedConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(GateSkipConfig(**config.model_dump()), backbone, semantics, seed)
        self.thresholds = None  # there is nothing to calibrate

    @property
    def dial(self) -> DialSpec:
        """Budget 1."""
        return DialSpec("budget", 1.0, 1.0, 1.0)

    @property
    def eligible_sites(self) -> frozenset[Site]:
        """Nowhere."""
        return frozenset()

    @property
    def skip_share(self) -> float:
        """Nobody skips, in training neither."""
        return 0.0

    @property
    def _rule(self) -> Rule:
        """Both semantics are the same."""
        return "exact_share"

    @classmethod
    def takes_target(cls, config: MethodConfig) -> bool:
        """There is nothing to move."""
        return False

    @classmethod
    def starts_from(cls, spec: MethodSpec) -> MethodSpec | None:
        """The pretrained model."""
        return None

    @classmethod
    def training_spec(cls, config: MethodConfig, spec: MethodSpec) -> MethodSpec:
        """Both semantics are the same."""
        return MethodSpec(spec.name, spec.params)
