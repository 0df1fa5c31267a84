"""The control of shuffled decisions on a model: what its own choice of tokens is worth (see `engine.shuffled`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from adaptive_bench.engine.shuffled import DecisionBank, DecisionCollector
from adaptive_bench.errors import UsageError
from adaptive_bench.method import why_not_shuffled
from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.model.held_out import unbooked


@torch.no_grad()
def collect_decisions(model: ForwardModel, batches: Sequence[dict[str, Tensor]]) -> DecisionBank:
    """The decisions of every token of a text, with the dial as it stands.

    Args:
        batches: `input_ids`, `attention_mask`, `continuation_mask`, each [B, S]; held-out training text.

    Raises:
        UsageError: There is no text, or the decisions are not those of single tokens.
    """
    if why := why_not_shuffled(model.spec):
        raise UsageError(f"A token can have another token's decisions where each is decided for itself, but {why}.")
    collector, training_before = DecisionCollector(), model.training
    model.eval()
    try:
        with unbooked(model), standing_between(model, collector):
            for batch in batches:
                model(**batch, logits_to_keep=1)
    finally:
        model.train(training_before)
    return collector.bank(model.method.seed, per_prompt=model.method.once_per_prompt)


@contextmanager
def standing_between(model: ForwardModel, between: DecisionBank | DecisionCollector | None) -> Iterator[None]:
    """In the block every token of the model gets decisions of a bank, made at the same weights and dial value.

    Raises:
        UsageError: In the block, where the dial is turned.
    """
    before = model.between
    model.between = between.to(model.backbone_model.device) if isinstance(between, DecisionBank) else between
    try:
        yield
    finally:
        model.between = before
