"""The share of token-branches a dial value claims to skip: `Method.dial_for`, read backwards.

A claim is what the dial was set for, or what calibration measured at that value. What a text really saved is the
ledger's to say.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adaptive_bench.errors import UsageError
from adaptive_bench.method import Method

_HALVINGS = 60


def claimed_saving(method: Method) -> float:
    """The claim at the method's current dial value.

    Raises:
        UsageError: The dial is no share and nothing was measured that far.
    """
    dial, value = method.dial, method.value
    if value == dial.skip_nothing:
        return 0.0
    if method.solves_dial:
        end = dial.at(1.0)
        travel = (value - dial.skip_nothing) / (end - dial.skip_nothing)
        measured = sorted(method.dial_table.measured.items())
        if travel > measured[-1][0] + 1e-9:
            raise UsageError(
                f"The saving of a dial is known where it was measured, got {dial.name} {value:g} with nothing measured "
                f"beyond {dial.at(measured[-1][0]):g}. Call model.calibrate(batches, savings) with larger savings."
            )
        travels, savings = zip(*measured, strict=True)
        return float(np.interp(travel, travels, savings))
    direction = np.sign(value - dial.skip_nothing)
    maximum = method.max_saved_tokens

    def first(passes: Callable[[float], bool]) -> float:
        """The smallest saving up to the maximum from which on the condition holds."""
        low, high = 0.0, maximum
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if passes(middle) else (middle, high)
        return high

    # A dial that counts layers has one value for a range of savings: the claim is its middle.
    start = first(lambda saving: direction * (method.dial_for(saving) - value) >= 0)
    beyond = first(lambda saving: direction * (method.dial_for(saving) - value) > 0)
    return maximum if beyond >= maximum else round((start + beyond) / 2, 9)
