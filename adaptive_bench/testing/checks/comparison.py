"""How two runs of a model are compared."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.model.static_decode import StaticSteps
from adaptive_bench.testing.backbones import Text
from adaptive_bench.testing.check import Violation

TOLERANCE = 1e-4  # of logits in fp32, between two orders of the same sums
NEW_TOKENS = 6


def difference(one: Tensor, other: Tensor) -> float:
    """Largest absolute difference; infinite where something is not a number."""
    return float((one - other).abs().nan_to_num(nan=torch.inf).max()) if one.numel() else 0.0


@torch.no_grad()
def logits_of(model: AdaptiveModel, text: Text) -> Tensor:
    """Logits [N, V] of the real tokens of a text, row after row, scored in one call."""
    return model(**text.arguments).logits[text.valid]


def generated_tokens(model: AdaptiveModel, text: Text, steps: StaticSteps | None = None) -> list[list[int]]:
    """What the model writes after the prompts; some rows finish before others.

    Args:
        steps: Written with these.
    """
    how: dict[str, Any] = {"stop": lambda new: new[-1] % 7 == 0, "steps": steps}
    return new_tokens(model, text.input_ids, text.attention_mask, max_new_tokens=NEW_TOKENS, **how)


def demand(condition: bool, message: str) -> None:
    """Raise a `Violation` unless a condition holds."""
    if not condition:
        raise Violation(message)
