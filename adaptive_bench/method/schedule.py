"""How training targets (budgets, capacities, densities) move: linearly to their end, which is then held.

One schedule for every method. A target that is reached at the very last step is trained at a learning rate of zero, so
the end comes earlier and the rest of the training is spent at it.
"""

from __future__ import annotations

from adaptive_bench.errors import UsageError

REACHED_AT = 0.7  # share of the training's steps after which a target is held


def annealed(start: float, end: float, step: int, total_steps: int) -> float:
    """A target at optimizer step `step` of 1 .. total_steps: `start` at the first, `end` from `REACHED_AT` on."""
    travelled = (step - 1) / max(1.0, REACHED_AT * (total_steps - 1))
    return end if travelled >= 1.0 else start + travelled * (end - start)


def check_step(step: int, total_steps: int) -> None:
    """Refuse what is no optimizer step of a training.

    Raises:
        UsageError: It is none of 1 .. total_steps.
    """
    if not 1 <= step <= total_steps:
        raise UsageError(
            f"A training's optimizer steps go from 1 to total_steps, got step {step!r} of {total_steps!r}. Count from "
            f"1, and give the number of steps of the whole training."
        )
