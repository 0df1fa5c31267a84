"""The target rule: every method is trained towards the same saving, on the axis that methods are matched on.

A method's schedule ends at a share of skipped token-branches. What that saves in FLOPs differs: a vector gate pays for
itself first, so equal shares are unequal targets. The untrained method is therefore priced on held-out training text
before it is trained: the share is found at which the ledger measures the wanted saving.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.recipe import FlopAxis

TOLERANCE = 0.002  # of the saving
_MAX_POINTS = 7
_FIRST_STEP = 0.05  # beyond the wanted saving, for the first look


@dataclass(frozen=True)
class Target:
    """What a training moves towards.

    Attributes:
        axis: What the saving is a share of.
        saving: Wanted.
        tokens: Share of token-branches to skip at the end of training.
        priced: What was saved on each axis where so many were skipped, before training; on `axis` less than wanted
            where the dial ends before.
    """

    axis: FlopAxis
    saving: float
    tokens: float
    priced: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@torch.no_grad()
def price(model: AdaptiveModel, batches: Sequence[dict[str, Tensor]], saving: float, axis: FlopAxis) -> Target:
    """The share of skipped token-branches that saves so much on the axis; leaves the model as it was, but for what its
    method measures before training (`Method.prepare_training`).

    Args:
        model: Before its training.
        batches: Held-out training text: `input_ids`, `attention_mask`, `continuation_mask`, each [B, S].
        saving: Share of the dense model's compute.
        axis: `layers`, `net`, `core` or `tokens`.
    """
    end = model.method.max_saving
    was_training = model.training
    model.eval()
    try:
        model.prepare_training(batches)
        # A number of layers saves its share of the layers, as of the tokens.
        asked = min(end, saving if axis in ("tokens", "layers") else saving + _FIRST_STEP)
        points = [_measure(model, batches, 0.0), _measure(model, batches, asked)]
        while len(points) < _MAX_POINTS:
            priced = points[-1][axis]
            if axis == "tokens" or abs(priced - saving) <= TOLERANCE or (asked >= end and priced < saving):
                break
            asked = min(end, max(0.0, asked + (saving - priced) * _tokens_per_saving(points, axis)))
            points.append(_measure(model, batches, asked))
        closest = min(points, key=lambda point: abs(point[axis] - saving))
        return Target(axis, saving, min(saving, end) if axis == "tokens" else closest["tokens"], closest)
    finally:
        model.dial = model.method.dial.skip_nothing
        model.forget_calibration()
        model.reset_ledger()
        model.train(was_training)


def _tokens_per_saving(points: Sequence[dict[str, float]], axis: FlopAxis) -> float:
    least, most = (end(points, key=lambda point: point["tokens"]) for end in (min, max))
    return (most["tokens"] - least["tokens"]) / max(most[axis] - least[axis], 1e-3)


def _measure(model: AdaptiveModel, batches: Sequence[dict[str, Tensor]], saved_tokens: float) -> dict[str, float]:
    """Saving on each axis where so many token-branches are asked for."""
    if saved_tokens > 0:
        model.calibrate(batches, [saved_tokens])
    model.dial = model.method.checked_dial(saved_tokens)
    model.reset_ledger()
    for batch in batches:
        model(**batch, logits_to_keep=1, phase="decode")
    saved = model.compute_report()["saved"]
    return {axis: saved[axis] for axis in get_args(FlopAxis)}
