"""Dense: every token executes every branch. The control that all savings and scores are measured against.

Idea: none. Fine-tuned on the same data in the same order, it shows what training alone does to the score.
Equations: $h' = h + f(h)$ at every branch. Deviations: none.
"""

from __future__ import annotations

from typing import ClassVar

from adaptive_bench.method import EXECUTE_ALL, Decision, DialSpec, Method, MethodConfig, Site, SiteView


class Dense(Method):
    """Executes everything; its dial has one value."""

    supports_data_parallel = True
    adapts = False
    trains_alike = True
    Config: ClassVar[type[MethodConfig]] = MethodConfig
    spares = False

    @property
    def dial(self) -> DialSpec:
        """One value only."""
        return DialSpec("none", 0.0, 0.0, 0.0)

    @property
    def eligible_sites(self) -> frozenset[Site]:
        """Nowhere."""
        return frozenset()

    def dial_for(self, saved_tokens: float) -> float:
        """Always the one value."""
        return 0.0

    def decide(self, view: SiteView) -> Decision:
        """All tokens, unscaled."""
        return EXECUTE_ALL
