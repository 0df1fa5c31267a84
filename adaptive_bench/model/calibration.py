"""Calibrated thresholds: per site and phase, the score below which a given share of held-out training text falls.

This is what makes a score-ranking method causal and batch-free: a token's fate depends on its own score only. Scores
shift once earlier sites skip, so they are collected with skipping active: in a first pass every batch drops exactly
the wanted share at each site, and the quantiles of all scores seen become the thresholds; a second pass applies them
and measures what they skip. Prompt tokens and continuation tokens have thresholds of their own. The text counts as
being written (phase `decode`), since some methods have another rule for prompts; where they do, that rule has routed
the prompts before (`held_out.after_prompts`), and what it skips is not measured here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from adaptive_bench.errors import PluginFault, UsageError
from adaptive_bench.faults import in_plugin
from adaptive_bench.method import Method, Thresholds
from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.model.held_out import after_prompts, unbooked

WARN_ABOVE = 0.01  # |realised - requested| share of skipped tokens at the calibrated sites
FAIL_ABOVE = 0.03


@torch.no_grad()
def calibrate(model: ForwardModel, batches: list[dict[str, Tensor]], dials: Iterable[float]) -> list[dict[str, Any]]:
    """Calibrate the thresholds of a model for some dial values; see the module's text.

    Args:
        batches: `input_ids`, `attention_mask`, `continuation_mask`, each [B, S]; held-out training text.
        dials: Dial values to make ready.

    Returns:
        Per dial: requested and realised share of skipped tokens at the deciding sites, and a status:
        `ok`, `warn` (off by more than 1 point) or `fail` (more than 3).

    Raises:
        PluginFault: The method's `skip_share` or its decisions do not hang on dial and thresholds.
    """
    thresholds = model.method.thresholds
    assert thresholds is not None
    dial_before, training_before = model.dial, model.training
    model.eval()
    points = []
    try:
        with unbooked(model):
            for dial in sorted({model.method.dial.check(dial) for dial in dials}, reverse=True):
                model.dial = dial
                share = _skip_share(model.method)
                if share <= 0.0:
                    _check_skip_nothing(model.method, dial)
                    continue
                thresholds.collect()
                _write(model, batches)
                _check_asked(model.method, thresholds)
                thresholds.finish(share)
                points.append(_verify(model, batches, dial, share))
    finally:
        thresholds.stop_collecting()  # a call that fails (out of memory, say) leaves the thresholds of before in force
        model.method.value = dial_before
        model.train(training_before)
    return points


def _skip_share(method: Method) -> float:
    """The share to skip at the current dial; what is computed from a dial may miss 0 or 1 by a rounding."""
    return min(max(method.skip_share, 0.0), 1.0)


def _check_skip_nothing(method: Method, dial: float) -> None:
    if dial != method.dial.skip_nothing:
        raise PluginFault(
            f"The skip_share of a method is above 0 where its dial skips, but that of {in_plugin(type(method))} is 0 "
            f"at {method.dial.name} {dial:g}, and {method.dial.skip_nothing:g} skips nothing. Compute skip_share from "
            f"self.value."
        )


def _check_asked(method: Method, thresholds: Thresholds) -> None:
    if missed := thresholds.unasked:
        raise PluginFault(
            f"A method that declares thresholds lets them decide, but decide of {in_plugin(type(method))} does not "
            f"call self.thresholds.keep(view, scores, self.skip_share) at {len(missed)} of {len(thresholds.sites)} "
            f"sites (the first has the number {missed[0]}). Call it there, or name those that do: Thresholds(sites)."
        )


def check_ready(method: Method, saving: float) -> None:
    """Refuse a dial that skips before what it needs was measured.

    Args:
        saving: What the dial was set for.

    Raises:
        UsageError: It was not.
    """
    thresholds = method.thresholds
    if thresholds is not None and (share := _skip_share(method)) > thresholds.largest + 1e-9:
        known = f"savings up to {thresholds.largest * saving / share:.3g}" if thresholds.largest else "nothing"
        raise UsageError(
            f"Thresholds must be calibrated for a saving before use, got saving {saving:g} with {known} calibrated. "
            "Ask for a smaller one, or call model.calibrate(batches, savings) with a saving at least that far."
        )
    if method.fitted is not None and method.value != method.dial.skip_nothing:
        method.fitted[method.fitted.names[0]]


def _write(model: ForwardModel, batches: list[dict[str, Tensor]]) -> None:
    """Run the text as if it were being written; the ledger books what the thresholds decide."""
    for batch in batches:
        with unbooked(model):
            left = after_prompts(model, batch)
        model(**left, logits_to_keep=1, phase="decode")


def _verify(model: ForwardModel, batches: list[dict[str, Tensor]], dial: float, share: float) -> dict[str, Any]:
    model.reset_ledger()
    _write(model, batches)
    assert model.method.thresholds is not None
    whole_layer = model.method.unit == "layer"
    sites = model.ledger.report()["sites"]
    deciding = [1 - sites[site]["executed"] for site in model.method.thresholds.sites]
    realised = sum(deciding) / len(deciding)
    error = abs(realised - share)
    status = "fail" if error > FAIL_ABOVE else "warn" if error > WARN_ABOVE else "ok"
    return {
        "dial": dial,
        "requested": share,
        "realised": realised,
        "worst_site_error": max(abs(value - share) for value in deciding),
        "unit": "layer" if whole_layer else "branch",
        "status": status,
    }
