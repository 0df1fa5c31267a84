"""Gates without skipping: GateSkip's gates and penalty, trained while every token executes every branch.

Idea: a gate also scales its branch, and its penalty regularises. What this control scores is GateSkip's starting point:
the difference to it is the price of skipping, the difference from `dense` to it the price (or gain) of the gates.
Paper: the equations of `gateskip` at a constant budget of 1 (https://arxiv.org/abs/2510.13876, eq. 2, 4, 5).
Deviations: as `gateskip`.
"""

from __future__ import annotations

from adaptive_bench.method import DialSpec, MethodConfig

from .gateskip import GateSkip


class Gated(GateSkip):
    """GateSkip that never skips; its dial does not move."""

    @property
    def dial(self) -> DialSpec:
        """Budget 1."""
        return DialSpec("budget", 1.0, 1.0, 1.0)

    @property
    def skip_share(self) -> float:
        """Nobody skips, in training neither."""
        return 0.0

    @classmethod
    def takes_target(cls, config: MethodConfig) -> bool:
        """There is nothing to move."""
        return False
