"""Learning rate over the steps: linear warm-up, then a cosine that ends at zero and stays there."""

from __future__ import annotations

import math


def learning_rate_factor(step: int, warmup_steps: int, total_steps: int) -> float:
    """Share of the peak learning rate at an optimizer step counted from 0.

    Stateless, so a resumed training needs nothing restored; clamped, so it never rises again past its end.
    """
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    return 0.5 * (1.0 + math.cos(math.pi * progress))
