"""The learning rate schedule: linear warm-up, then a plateau with a linear end, or a cosine; both end at zero.

It is stateless, so that a resumed training restores nothing, and clamped, so that it never rises again past its end.
"""

from __future__ import annotations

import math
from typing import Literal

Decay = Literal["linear_end", "cosine"]
FALLS_FROM = 0.6  # share of the steps after which the plateau ends and the linear fall begins


def learning_rate_factor(decay: Decay, step: int, warmup_steps: int, total_steps: int) -> float:
    """Share of the peak learning rate at an optimizer step, counted from 0.

    `linear_end` keeps the peak for most of the time in which training targets move (they reach their end after 70 % of
    the steps, see `method.dial`), so that the rate is still large enough to learn at the target. Most papers use
    `cosine`.
    """
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    if decay == "linear_end":
        falls_from = max(warmup_steps, FALLS_FROM * total_steps)
        return min(1.0, max(0.0, (total_steps - step) / max(1.0, total_steps - falls_from)))
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    return 0.5 * (1.0 + math.cos(math.pi * progress))
