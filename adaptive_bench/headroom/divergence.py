"""How far a run that skips is from the full model: the KL divergence of what it predicts, token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from adaptive_bench.headroom.texts import TaskText, TextBatch, text_batches
from adaptive_bench.model import AdaptiveModel

# Logits of one batch at most: 1 GiB in fp32, whatever the vocabulary.
_MOST_VALUES = 1 << 28


class Divergence(NamedTuple):
    """Mean KL divergence in nats from the full model's predictions.

    Attributes:
        everywhere: Over all tokens of the texts, or what was looked at of them.
        answers: Over those that predict the answer.
    """

    everywhere: float
    answers: float


class FullModel:
    """What the full model predicts on some texts, kept once for many comparisons.

    Args:
        model: It skips nothing.
        texts: Read with the answers they have.
        rows: Most texts in a batch.
        answers_only: Look at the tokens that predict answers alone, which is faster.
    """

    def __init__(
        self, model: AdaptiveModel, texts: Sequence[TaskText], rows: int, *, answers_only: bool = False
    ) -> None:
        device = next(model.parameters()).device
        longest = max((len(text.read) for text in texts), default=1)
        rows = min(rows, max(1, _MOST_VALUES // (longest * model.backbone.vocab_size)))
        self.batches = list(text_batches(texts, rows, device))
        self._looked_at = [batch.writing if answers_only else batch.attention_mask.bool() for batch in self.batches]
        self._log_probabilities = [
            _log_probabilities(model, batch, chosen)
            for batch, chosen in zip(self.batches, self._looked_at, strict=True)
        ]

    def divergence(self, model: AdaptiveModel, prepare: Callable[[int], None] | None = None) -> Divergence:
        """From this model's predictions to another's, KL(full || other).

        Args:
            prepare: Called with the number of each batch before it runs.
        """
        sums, counts = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
        known = zip(self.batches, self._looked_at, self._log_probabilities, strict=True)
        for number, (batch, chosen, full) in enumerate(known):
            if prepare is not None:
                prepare(number)
            other = _log_probabilities(model, batch, chosen)
            each = functional.kl_div(other, full, reduction="none", log_target=True).sum(dim=-1).double().cpu()
            answers = batch.writing[chosen].cpu()
            sums += torch.stack([each.sum(), each[answers].sum()])
            counts += torch.tensor([each.numel(), int(answers.sum())])
        everywhere, answers_only = (sums / counts).tolist()
        return Divergence(everywhere, answers_only)


@torch.no_grad()
def _log_probabilities(model: AdaptiveModel, batch: TextBatch, chosen: Tensor) -> Tensor:
    """[N, V] of the chosen tokens of a batch, in (row, position) order."""
    logits = model(batch.input_ids, batch.attention_mask).logits
    return logits[chosen].float().log_softmax(dim=-1)
