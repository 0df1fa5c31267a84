"""Searches for the layers to leave out for every token: the floor that every adaptive method has to beat.

For each number of layers, the finalists are the sets whose predictions change least on validation text: among all
subsets if these are few, else by greedy deletion, one more layer at a time. Scores on validation documents decide among
the finalists. Layers are left out of the model as it is, without training, and store no K,V.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from adaptive_bench.backbone import Backbone
from adaptive_bench.headroom.task_texts import TaskText, text_batches
from adaptive_bench.model.interventions import static_model
from adaptive_bench.progress import Reporter

# All subsets of a given size are tried if there are at most this many: the number of all subsets of 8 layers.
MOST_SUBSETS = 256
FINALISTS = 3  # for each number of layers
_MOST_VALUES = 1 << 28  # most logits of a batch, 1 GiB in fp32 for any vocabulary


@dataclass(frozen=True)
class LayerSet:
    """A set of layers to leave out (rising numbers), and the mean KL in nats from the full model on validation
    answers.
    """

    skipped: tuple[int, ...]
    divergence: float


class StaticSets:
    """Searches the sets of a model on some texts."""

    def __init__(self, backbone_model: PreTrainedModel, texts: Sequence[TaskText], rows: int) -> None:
        backbone = Backbone(backbone_model)
        self._backbone_model, self._layers = backbone_model, backbone.num_layers
        longest = max((len(text.read) for text in texts), default=1)
        rows = min(rows, max(1, _MOST_VALUES // (longest * backbone.vocab_size)))
        self._batches = list(text_batches(texts, rows, backbone_model.device))
        self._full = self._log_probabilities(())

    def divergence(self, skipped: Sequence[int]) -> float:
        """Mean KL(full model || without these layers) in nats over the tokens that predict answers."""
        total = count = 0.0
        for full, other in zip(self._full, self._log_probabilities(skipped), strict=True):
            # PyTorch takes the approximation first: the sum is KL(full || other).
            total += float(functional.kl_div(other, full, reduction="sum", log_target=True))
            count += len(full)
        return total / count

    def finalists(self, count: int, nested: Sequence[int], reporter: Reporter, label: str) -> list[LayerSet]:
        """The best sets of `count` layers, nearest to the full model first. The best one that extends `nested`, the
        chain's set with one layer less, is always among them (`next_nested`).
        """
        layers = range(self._layers)
        if comb(len(layers), count) <= MOST_SUBSETS:
            tried = list(combinations(layers, count))
        else:
            tried = [tuple(sorted({*nested, layer})) for layer in layers if layer not in nested]
        measured = []
        with reporter.task(f"{label}: sets of {count} layer(s) to leave out", total=len(tried)) as task:
            for skipped in tried:
                measured.append(LayerSet(skipped, self.divergence(skipped)))
                task.advance()
        measured.sort(key=lambda one: one.divergence)
        best, extending = measured[:FINALISTS], next_nested(measured, nested)
        # Some set extends `nested`, which is one layer smaller: all subsets of this size were tried, or all extensions.
        return best if extending in best else [*best, extending]

    @torch.no_grad()
    def _log_probabilities(self, skipped: Sequence[int]) -> list[Tensor]:
        """Log-probabilities [N, V] of each batch at the N positions that write, without the skipped layers."""
        model = static_model(self._backbone_model, skipped)
        every = ((one, model(one.input_ids, attention_mask=one.attention_mask).logits) for one in self._batches)
        return [logits[one.writing].float().log_softmax(dim=-1) for one, logits in every]


def next_nested(sets: Sequence[LayerSet], nested: Collection[int]) -> LayerSet:
    """The first set that contains a nested set and more."""
    return next(one for one in sets if set(nested) < set(one.skipped))
