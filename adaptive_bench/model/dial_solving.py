"""Finds dial values for wanted savings, for methods whose dial is not itself a share (thresholds, offsets).

The saving is measured on held-out training text by the ledger, never declared: a bisection between "skips nothing" and
the other end of the dial (`DialTable.solve`), which works for any dial that saves more as it moves away from "skips
nothing". Methods that decide otherwise for prompts than for what is written are measured on both
(`held_out.after_prompts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.model.held_out import after_prompts, unbooked

_FAR = 0.01  # from the saving that was asked for: worth a warning


@torch.no_grad()
def solve(model: ForwardModel, batches: Sequence[dict[str, Tensor]], savings: Sequence[float]) -> list[dict[str, Any]]:
    """Fill the method's dial table so that `dial_for` knows these savings.

    Args:
        batches: `input_ids`, `attention_mask`, `continuation_mask`, each [B, S]; held-out training text.
        savings: Shares of token-branches.

    Returns:
        Per saving: the dial, requested and realised share, and a status: `ok`, or `warn` where the dial cannot come
        closer than 1 point.
    """
    method, measure = model.method, partial(_measure, model, batches)
    points = []
    for saving in savings:
        reachable = min(saving, method.max_saving)
        method.dial_table.solve(reachable, measure)
        _, realised = method.dial_table.nearest(reachable)
        status = "ok" if abs(realised - saving) <= _FAR else "warn"
        dial = method.checked_dial(saving)
        points.append({"dial": dial, "requested": saving, "realised": realised, "status": status})
    return points


def _measure(model: ForwardModel, batches: Sequence[dict[str, Tensor]], travel: float) -> float:
    """Share of token-branches skipped on the text at a dial position."""
    dial_before, training_before = model.dial, model.training
    try:
        with unbooked(model):
            model.eval()
            model.reset_ledger()
            model.dial = model.method.dial.at(travel)
            for batch in batches:
                model(**after_prompts(model, batch), logits_to_keep=1)
            saved = model.compute_report()["saved"]["tokens"]
    finally:
        model.method.value = dial_before
        model.train(training_before)
    return float(saved)
