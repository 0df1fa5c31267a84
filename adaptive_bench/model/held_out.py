"""Held-out text as calibration runs it: routed as inference routes it, and nowhere in the books afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from adaptive_bench.errors import UsageError
from adaptive_bench.model.forward import ForwardModel

_PARTS = ("input_ids", "attention_mask", "continuation_mask")


def checked_text(batches: Any, least: int = 0) -> list[dict[str, Tensor]]:
    """Batches of held-out text, each `input_ids`, `attention_mask` and `continuation_mask`, all [B, S].

    Args:
        least: So many batches at least.

    Raises:
        UsageError: They are something else.
    """
    # One batch in place of a list would be a list of its keys.
    found: list[dict[str, Tensor]] = [dict(batches)] if isinstance(batches, Mapping) else list(batches)
    if len(found) < least:
        raise _no_text(f"{len(found)} batches where one is needed")
    for number, batch in enumerate(found, 1):
        if not batch.keys() >= set(_PARTS):  # a run gives the keys of its documents as well
            raise _no_text(f"{', '.join(map(str, batch)) or 'nothing'} in batch {number}")
    return found


def _no_text(got: str) -> UsageError:
    return UsageError(
        f"Held-out text is a list of batches with {', '.join(_PARTS)}, each a tensor [rows, tokens], got {got}. Give "
        f"for example [{{**tokenizer(texts, return_tensors='pt'), 'continuation_mask': mask}}]."
    )


def checked_savings(savings: Any) -> list[float]:
    """Savings as plain numbers.

    Raises:
        UsageError: They are no shares.
    """
    shares = [float(saving) for saving in savings]
    if wrong := [share for share in shares if not 0 <= share <= 1]:
        raise UsageError(f"A saving is a share from 0 to 1, got {wrong[0]!r}. Give 0.15 for 15 %.")
    return shares


def after_prompts(model: ForwardModel, batch: dict[str, Tensor]) -> dict[str, Any]:
    """What is left to run of a text once its prompts were read as inference reads them: arguments for `model`.

    Decisions of class C0 are the same however a text is cut into calls (`adaptive-bench check` holds methods to that):
    the whole text is left. Others depend on the call. So the prompts are read here, in a call of phase `prefill` of
    their own, and the continuation is left, with the cache to go on from. A text with prompts only, or without any, is
    left whole.

    Args:
        batch: `input_ids`, `attention_mask`, `continuation_mask`, each [B, S].
    """
    method = model.method
    real, continuation = batch["attention_mask"].bool(), batch["continuation_mask"].bool()
    prompts, answers = real & ~continuation, real & continuation
    causal = method.semantics == "bench" or method.paper_class == "C0"
    if causal or not prompts.any() or not answers.any():
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
    """The ledger says afterwards what it said before."""
    before = model.ledger.counts()
    try:
        yield
    finally:
        model.reset_ledger()
        model.ledger.add(before)
