"""Dense: every token executes every branch. The control that all savings and scores are measured against.

Idea: none. Fine-tuned on the same data in the same order, it shows what training alone does to the score.
Equations: $h' = h + f(h)$ at every branch. Deviations: none.
"""

from __future__ import annotations

from typing import ClassVar

from adaptive_bench.method import EXECUTE_ALL, Decision, DialSpec, Method, MethodConfig, Site, SiteView


class Dense(Method):
    """Executes every branch for every token; its dial has a single value."""

    supports_data_parallel = True
    adapts = False
    trains_alike = True
    Config: ClassVar[type[MethodConfig]] = MethodConfig
    spares = False
    dial = DialSpec("none", 0.0, 0.0, 0.0)
    eligible_sites: frozenset[Site] = frozenset()

    def dial_for(self, saved_tokens: float) -> float:
        return 0.0

    def decide(self, view: SiteView) -> Decision:
        return EXECUTE_ALL
