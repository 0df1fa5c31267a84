"""The target rule: every method is trained towards the same saving, on the axis by which methods are matched.

A method's schedule ends at a share of skipped token-branches. Equal shares save different amounts of FLOPs, since for
example a vector gate must first save its own cost. So before training, the untrained method is priced on held-out
training text: this finds the share at which the ledger measures the wanted saving.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.recipe import FlopAxis

TOLERANCE = 0.002  # absolute tolerance of the saving
_MAX_POINTS = 7
_FIRST_STEP = 0.05  # the first point asks for this much more than the wanted saving, to pay for the method's own cost


@dataclass(frozen=True)
class Target:
    """The target of a training.

    Attributes:
        saving, axis: The wanted saving, and its axis.
        tokens: Share of token-branches to skip at the end of training.
        priced: The saving on each axis at this share, measured before training. On `axis` it is smaller than wanted if
            the dial ends before.
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
    """Find the share of skipped token-branches that gives a saving on an axis. The model stays unchanged, apart from
    what its method measures before training (`Method.prepare_training`).

    Args:
        batches: Held-out training text: `input_ids`, `attention_mask`, `continuation_mask`, each [B, S].
        saving: Wanted share of the dense model's compute.
    """
    end = model.method.max_saving
    was_training = model.training
    model.eval()
    try:
        model.prepare_training(batches)
        # On the axes `tokens` and `layers`, the share asked for is a good first guess of the saving.
        asked = min(end, saving if axis in ("tokens", "layers") else saving + _FIRST_STEP)
        # At 0 the saving is minus the method's own cost; with the guess it gives the first slope.
        points = [_measure(model, batches, 0.0), _measure(model, batches, asked)]
        while len(points) < _MAX_POINTS:
            priced = points[-1][axis]
            # On `tokens` the wanted saving is the share itself. At the end of the dial nothing more can be asked for.
            if axis == "tokens" or abs(priced - saving) <= TOLERANCE or (asked >= end and priced < saving):
                break
            least, most = (side(points, key=lambda point: point["tokens"]) for side in (min, max))
            tokens_per_saving = (most["tokens"] - least["tokens"]) / max(most[axis] - least[axis], 1e-3)
            asked = min(end, max(0.0, asked + (saving - priced) * tokens_per_saving))
            points.append(_measure(model, batches, asked))
        closest = min(points, key=lambda point: abs(point[axis] - saving))
        return Target(axis, saving, min(saving, end) if axis == "tokens" else closest["tokens"], closest)
    finally:
        model.dial = model.method.dial.skip_nothing
        model.forget_calibration()
        model.reset_ledger()
        model.train(was_training)


def _measure(model: AdaptiveModel, batches: Sequence[dict[str, Tensor]], saved_tokens: float) -> dict[str, float]:
    """The saving on each axis if the dial is set for a share of token-branches."""
    if saved_tokens > 0:
        model.calibrate(batches, [saved_tokens])
    model.dial = model.method.checked_dial(saved_tokens)
    model.reset_ledger()
    for batch in batches:
        # As decoding: with `paper` semantics MoD ranks the tokens of a prefill in place of using its thresholds.
        model(**batch, logits_to_keep=1, phase="decode")
    saved = model.compute_report()["saved"]
    return {axis: saved[axis] for axis in get_args(FlopAxis)}
