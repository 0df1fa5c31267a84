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
    """The parameters of GateSkip that do not concern skipping.

    There is no search space: tuning optimises the quality retained at a saving, and this control saves nothing. Give it
    the values of the GateSkip it is compared with.
    """

    shape: Literal["vector", "scalar"] = Field("vector", description="as in `gateskip`")
    loss: Literal["l2", "l1"] = Field("l2", description="as in `gateskip`")
    sparsity_weight: float | None = Field(None, ge=0, description="as in `gateskip`")


class Gated(GateSkip):
    """GateSkip that never skips; its dial does not move."""

    supports_data_parallel = True
    adapts = False
    Config: ClassVar[type[MethodConfig]] = GatedConfig
    paper_class: ClassVar[CausalityClass] = "C0"  # no tokens are ranked against each other
    dial = DialSpec("budget", 1.0, 1.0, 1.0)
    eligible_sites: frozenset[Site] = frozenset()
    skip_share = 0.0
    _rule: Rule = "exact_share"  # in both semantics, since no token skips

    def __init__(self, config: GatedConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(GateSkipConfig(**config.model_dump()), backbone, semantics, seed)
        self.thresholds = None  # there is nothing to calibrate

    @classmethod
    def takes_target(cls, config: MethodConfig) -> bool:
        """Never: the budget stays at 1."""
        return False

    @classmethod
    def starts_from(cls, spec: MethodSpec) -> MethodSpec | None:
        return None

    @classmethod
    def training_spec(cls, config: MethodConfig, spec: MethodSpec) -> MethodSpec:
        """One training serves both semantics."""
        return MethodSpec(spec.name, spec.params)
