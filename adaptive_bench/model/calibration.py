"""Calibrates on held-out training text: thresholds, dial values for wanted savings, and fitted values of methods.

* Thresholds: per site and phase, the score below which a given share of the text falls. They make a score-ranking
  method causal and batch-free: whether a token executes depends on its own score only. Scores shift once earlier sites
  skip, so they are collected with skipping active. In a first pass every batch drops exactly the wanted share at each
  site, and the quantiles of all scores become the thresholds. A second pass applies the thresholds and measures what
  they skip. Prompt tokens and continuation tokens have separate thresholds. The text is run as generated text (phase
  `decode`), since some methods have another rule for prompts. For such methods the prompts are first read with that
  rule (`after_prompts`), and what it skips is not measured here.
* Dials that are not a share (thresholds, offsets): the ledger measures the saving, in a bisection between the dial that
  skips nothing and the other end of the dial (`DialTable.solve`).
* `Method.fit` and `Method.prepare_training` read the text themselves.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from adaptive_bench.errors import PluginFault, UsageError, in_plugin
from adaptive_bench.method import Method
from adaptive_bench.method.fitted import HeldOutText, Streams
from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.model.text_decisions import listening

TEXT_PARTS = ("input_ids", "attention_mask", "continuation_mask")  # parts of a batch, each [B, S]
WARN_ABOVE = 0.01  # |realised - requested| share of skipped tokens
FAIL_ABOVE = 0.03
_LOSS_TEXTS = 64  # texts per loss: few, since greedy deletion of 16 layers measures 136 losses


@torch.no_grad()
def calibrate(model: ForwardModel, batches: list[dict[str, Tensor]], dials: Iterable[float]) -> list[dict[str, Any]]:
    """Calibrate the thresholds of a model for some dial values; returns for each the requested and realised share of
    skipped tokens at the deciding sites, and a status: `ok`, `warn` (off by more than 1 point) or `fail` (more than 3).
    """
    thresholds = model.method.thresholds
    assert thresholds is not None
    points = []
    try:
        with measuring(model):
            for dial in sorted({model.method.dial.check(dial) for dial in dials}, reverse=True):
                model.dial = dial
                share = _skip_share(model.method)
                # Right where the dial skips nothing; elsewhere the method does not derive `skip_share` from its dial.
                if share <= 0.0:
                    if dial != model.method.dial.skip_nothing:
                        raise _not_asked(model.method, dial, thresholds.sites)
                    continue
                # First pass: drop exactly the share and record scores.
                thresholds.collect()
                _write(model, batches)
                if missed := thresholds.unasked:
                    raise _not_asked(model.method, dial, missed)
                # Second pass: apply the thresholds and measure what they skip.
                thresholds.finish(share)
                points.append(_verify(model, batches, dial, share))
    finally:
        thresholds.stop_collecting()  # if a call fails (such as out of memory), the earlier thresholds stay in force
    return points


def _skip_share(method: Method) -> float:
    """The share to skip at the current dial, clamped because rounding may take it slightly below 0 or above 1."""
    return min(max(method.skip_share, 0.0), 1.0)


def _not_asked(method: Method, dial: float, sites: Sequence[int]) -> PluginFault:
    return PluginFault(
        f"A method with thresholds lets them decide where its dial skips, but {in_plugin(type(method))} at "
        f"{method.dial.name} {dial:g} does not call self.thresholds.keep(view, scores, self.skip_share) with a share "
        f"above 0 at {len(sites)} sites (the first has the number {sites[0]}). Compute skip_share from self.value, and "
        f"call it at each of Thresholds(sites)."
    )


def check_ready(method: Method, saving: float) -> None:
    """Refuse a dial that skips if the thresholds or fitted values it needs are not measured."""
    thresholds = method.thresholds
    if thresholds is not None and (share := _skip_share(method)) > thresholds.largest + 1e-9:
        known = f"savings up to {thresholds.largest * saving / share:.3g}" if thresholds.largest else "nothing"
        raise UsageError(
            f"Thresholds must be calibrated for a saving before use, got saving {saving:g} with {known} calibrated. "
            "Ask for a smaller saving, or call model.calibrate(batches, savings) with a saving at least that large."
        )
    if method.fitted is not None and method.value != method.dial.skip_nothing:
        # Raises the error of a value that is not measured.
        method.fitted[method.fitted.names[0]]


def _write(model: ForwardModel, batches: list[dict[str, Tensor]]) -> None:
    """Run the text as if it were being generated; the ledger books what the thresholds decide."""
    for batch in batches:
        with unbooked(model):
            left = after_prompts(model, batch)
        model(**left, logits_to_keep=1, phase="decode")


def _verify(model: ForwardModel, batches: list[dict[str, Tensor]], dial: float, share: float) -> dict[str, Any]:
    model.reset_ledger()
    _write(model, batches)
    assert model.method.thresholds is not None
    sites = model.ledger.report()["sites"]
    deciding = [1 - sites[site]["executed"] for site in model.method.thresholds.sites]
    realised = sum(deciding) / len(deciding)
    error = abs(realised - share)
    return {
        "dial": dial,
        "requested": share,
        "realised": realised,
        "worst_site_error": max(abs(value - share) for value in deciding),
        "unit": model.method.unit,
        "status": "fail" if error > FAIL_ABOVE else "warn" if error > WARN_ABOVE else "ok",
    }


@torch.no_grad()
def solve_dials(
    model: ForwardModel, batches: Sequence[dict[str, Tensor]], savings: Sequence[float]
) -> list[dict[str, Any]]:
    """Fill the method's dial table so that `dial_for` knows these savings; returns for each the dial, requested and
    realised share, and a status: `ok`, or `warn` if the dial cannot come closer than 1 point.
    """
    method, measure = model.method, partial(_saving_at, model, batches)
    points = []
    for saving in savings:
        reachable = min(saving, method.max_saving)
        method.dial_table.solve(reachable, measure)
        dial, (_, realised) = method.checked_dial(saving), method.dial_table.nearest(reachable)
        status = "ok" if abs(realised - saving) <= WARN_ABOVE else "warn"
        points.append({"dial": dial, "requested": saving, "realised": realised, "status": status})
    return points


def _saving_at(model: ForwardModel, batches: Sequence[dict[str, Tensor]], travel: float) -> float:
    """Share of token-branches skipped on the text at a travel of the dial."""
    with measuring(model):
        model.dial = model.method.dial.at(travel)  # this empties the ledger
        for batch in batches:
            model(**after_prompts(model, batch), logits_to_keep=1)
        return float(model.compute_report()["saved"]["tokens"])


class _Text:
    """Held-out text as a model reads it; see `HeldOutText`."""

    def __init__(self, model: ForwardModel, batches: Sequence[dict[str, Tensor]]) -> None:
        self._model, self._batches = model, batches
        # Every n-th text is read, counted through all batches.
        self._every = math.ceil(sum(len(batch["input_ids"]) for batch in batches) / _LOSS_TEXTS)

    def streams(self) -> Iterator[Streams]:
        for batch in self._batches:
            # The stream before every deciding site; the one after the last layer is appended.
            with listening(self._model.method, lambda view, _: view.hidden) as states:
                states.append(self._model.residual_stream(**_text_parts(batch)))
            real = batch["attention_mask"].bool()
            ends = real & ~functional.pad(real[:, 1:], (0, 1))
            prompts = ~batch["continuation_mask"].bool()
            yield Streams([state[real] for state in states], ends[real], prompts[real])

    def loss(self) -> float:
        total, tokens, start = 0.0, 0, 0
        backbone = self._model.backbone
        for batch in self._batches:
            # The first text of this batch whose number over all batches is a multiple of `_every`.
            rows = slice(-start % self._every, None, self._every)
            start += len(batch["input_ids"])
            part = {name: values[rows] for name, values in _text_parts(batch).items()}
            if not len(part["input_ids"]):
                continue
            real, later = part["attention_mask"].bool(), part["continuation_mask"].bool()
            # Answers alone count where there are any.
            predicted = real & torch.where(later.any(dim=1, keepdim=True), later, real)
            # Tokens that predict a counted one.
            places = real[:, :-1] & predicted[:, 1:]
            states = self._model.residual_stream(**part)[:, :-1][places]
            logits = backbone.head(backbone.final_norm(states)).float()
            total += float(functional.cross_entropy(logits, part["input_ids"][:, 1:][places], reduction="sum"))
            tokens += int(places.sum())
        return total / max(1, tokens)


def _text_parts(batch: dict[str, Tensor]) -> dict[str, Any]:
    return {name: batch[name] for name in TEXT_PARTS}


@torch.no_grad()
def let_measure(model: ForwardModel, batches: Sequence[dict[str, Tensor]], by: Callable[[HeldOutText], None]) -> None:
    """Let a method measure on a text, with a dial that skips nothing; model and ledger stay unchanged."""
    with measuring(model):
        model.executor = "packed"  # it calls `Decision.otherwise` only for skipping tokens, of which there are none
        model.dial = model.method.dial.skip_nothing
        by(_Text(model, batches))


def text_digest(batches: Sequence[dict[str, Tensor]]) -> str:
    """The sha256 of the tokens and masks of a text."""
    found = hashlib.sha256()
    for batch in batches:
        for values in _text_parts(batch).values():
            found.update(values.long().cpu().numpy().tobytes())
    return found.hexdigest()


def checked_text(batches: Any, least: int = 0) -> list[dict[str, Tensor]]:
    """Batches of held-out text, each `input_ids`, `attention_mask` and `continuation_mask`, all [B, S]."""
    # `list` of a single batch would give its keys.
    found: list[dict[str, Tensor]] = [dict(batches)] if isinstance(batches, Mapping) else list(batches)
    if len(found) < least:
        raise _no_text(f"{len(found)} batches where one is needed")
    for number, batch in enumerate(found, 1):
        if not batch.keys() >= set(TEXT_PARTS):  # batches of a run have further keys
            raise _no_text(f"{', '.join(map(str, batch)) or 'nothing'} in batch {number}")
    return found


def _no_text(got: str) -> UsageError:
    return UsageError(
        f"Held-out text is a list of batches with {', '.join(TEXT_PARTS)}, each a tensor [rows, tokens], got {got}. "
        f"Give for example [{{**tokenizer(texts, return_tensors='pt'), 'continuation_mask': mask}}]."
    )


def checked_savings(savings: Any) -> list[float]:
    """Savings as plain numbers, each from 0 to 1."""
    shares = [float(saving) for saving in savings]
    if wrong := [share for share in shares if not 0 <= share <= 1]:
        raise UsageError(f"A saving is a share from 0 to 1, got {wrong[0]!r}. Give 0.15 for 15 %.")
    return shares


def after_prompts(model: ForwardModel, batch: dict[str, Tensor]) -> dict[str, Any]:
    """Read the prompts of a text as inference does, if needed; returns the arguments for `model` to run the rest.

    Decisions of class C0 do not depend on how a text is cut into calls (`adaptive-bench check` tests this), so the
    whole text is returned. Other decisions depend on the call, so the prompts are read here in a separate call of phase
    `prefill`, and the continuation is returned with the cache. A text with only prompts, or without any, is returned
    whole.
    """
    real, continuation = batch["attention_mask"].bool(), batch["continuation_mask"].bool()
    prompts, answers = real & ~continuation, real & continuation
    if model.is_causal or not prompts.any() or not answers.any():
        return dict(batch)
    ids = batch["input_ids"]
    read = model(ids, prompts, continuation_mask=continuation, use_cache=True, logits_to_keep=1, phase="prefill")
    return {
        "input_ids": ids,
        "attention_mask": answers,
        "continuation_mask": continuation,
        "past_key_values": read.past_key_values,
    }


@contextmanager
def unbooked(model: ForwardModel) -> Iterator[None]:
    """Restore the ledger after the block."""
    before = model.ledger.counts()
    try:
        yield
    finally:
        model.reset_ledger()
        model.ledger.add(before)


@contextmanager
def measuring(model: ForwardModel) -> Iterator[None]:
    """Run the block in `eval()` mode, and restore dial, executor, mode and ledger afterwards."""
    dial, training, executor = model.dial, model.training, model._executor
    model.eval()
    try:
        with unbooked(model):
            yield
    finally:
        # The value itself, since setting `dial` would empty the ledger that was just restored.
        model.method.value, model.executor = dial, executor
        model.train(training)
