"""Gives methods held-out text to measure on (`Method.fit`, `Method.prepare_training`)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from adaptive_bench.method import Decision, SiteView
from adaptive_bench.method.fitted import HeldOutText, Streams
from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.model.held_out import unbooked

_LOSS_TEXTS = 64  # of one reading: greedy deletion of 16 layers takes 136


class _Text:
    """Held-out text as a model reads it; see `HeldOutText`."""

    def __init__(self, model: ForwardModel, batches: Sequence[dict[str, Tensor]]) -> None:
        self._model, self._batches = model, batches
        self._every = math.ceil(sum(len(batch["input_ids"]) for batch in batches) / _LOSS_TEXTS)

    def streams(self) -> Iterator[Streams]:
        method = self._model.method
        for batch in self._batches:
            states: list[Tensor] = []

            def listen(view: SiteView, decision: Decision, states: list[Tensor] = states) -> None:
                states.append(view.hidden)

            method.listeners.append(listen)
            try:
                states.append(self._model.residual_stream(**_read(batch)))
            finally:
                method.listeners.remove(listen)
            real = batch["attention_mask"].bool()
            ends = real & ~functional.pad(real[:, 1:], (0, 1))
            prompts = ~batch["continuation_mask"].bool()
            yield Streams([state[real] for state in states], ends[real], prompts[real])

    def loss(self) -> float:
        total, tokens, start = 0.0, 0, 0
        backbone = self._model.backbone
        for batch in self._batches:
            rows = slice(-start % self._every, None, self._every)
            start += len(batch["input_ids"])
            part = {name: values[rows] for name, values in _read(batch).items()}
            if not len(part["input_ids"]):
                continue
            real, later = part["attention_mask"].bool(), part["continuation_mask"].bool()
            predicted = real & torch.where(later.any(dim=1, keepdim=True), later, real)
            places = real[:, :-1] & predicted[:, 1:]
            states = self._model.residual_stream(**part)[:, :-1][places]
            logits = backbone.head(backbone.final_norm(states)).float()
            total += float(functional.cross_entropy(logits, part["input_ids"][:, 1:][places], reduction="sum"))
            tokens += int(places.sum())
        return total / max(1, tokens)


def _read(batch: dict[str, Tensor]) -> dict[str, Any]:
    return {name: batch[name] for name in ("input_ids", "attention_mask", "continuation_mask")}


@torch.no_grad()
def measure(model: ForwardModel, batches: Sequence[dict[str, Tensor]], by: Callable[[HeldOutText], None]) -> None:
    """Let a method measure on a text, with a dial that skips nothing; model and ledger stay as they were.

    Args:
        batches: `input_ids`, `attention_mask`, `continuation_mask`, each [B, S]; held-out training text.
        by: The method's `fit` or `prepare_training`.
    """
    dial_before, training_before, executor_before = model.dial, model.training, model._executor
    model.eval()
    model.executor = "packed"  # which asks nobody for what skipping tokens get where none skips
    try:
        with unbooked(model):
            model.dial = model.method.dial.skip_nothing
            by(_Text(model, batches))
    finally:
        model.method.value, model.executor = dial_before, executor_before
        model.train(training_before)


def digest(batches: Sequence[dict[str, Tensor]]) -> str:
    """Tells two texts apart."""
    found = hashlib.sha256()
    for batch in batches:
        for values in _read(batch).values():
            found.update(values.long().cpu().numpy().tobytes())
    return found.hexdigest()
