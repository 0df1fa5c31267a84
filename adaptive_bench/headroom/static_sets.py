"""Searches for the layers to leave out for every token: the floor that every adaptive method has to beat.

For each number of layers, the finalists are the sets whose predictions change least on validation text: among all
subsets if these are few, else by greedy deletion, one more layer at a time. Scores on validation documents decide among
the finalists. Layers are left out of the model as it is, without training, and store no K,V.

The residual stream before every layer is kept for the chain's last set, so a pass for another set begins at the first
layer at which the two sets differ.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from adaptive_bench.engine.layer_loop import run_layers
from adaptive_bench.headroom.task_texts import TaskText, text_batches
from adaptive_bench.model.interventions import prescribed_model
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
    """Searches the sets of a model on some texts.

    `chain` is the set whose states are kept: the empty set at first, then the last `nested` given to `finalists`.
    """

    def __init__(self, backbone_model: PreTrainedModel, texts: Sequence[TaskText], rows: int) -> None:
        self._model: Any = prescribed_model(backbone_model)
        longest = max((len(text.read) for text in texts), default=1)
        # An upper bound: only positions that write get logits.
        rows = min(rows, max(1, _MOST_VALUES // (longest * self._model.backbone.vocab_size)))
        self._batches = list(text_batches(texts, rows, backbone_model.device))
        self.chain: tuple[int, ...] = ()
        self._states: list[list[Tensor]] = [[] for _ in self._batches]  # for each batch, the states before every layer
        self._full = self._read((), keep=True)

    def divergence(self, skipped: Sequence[int]) -> float:
        """Mean KL(full model || without these layers) in nats over the tokens that predict answers."""
        total = count = 0.0
        for full, other in zip(self._full, self._read(skipped), strict=True):
            # PyTorch takes the approximation first: the sum is KL(full || other).
            total += float(functional.kl_div(other, full, reduction="sum", log_target=True))
            count += len(full)
        return total / count

    def finalists(self, count: int, nested: Sequence[int], reporter: Reporter, label: str) -> list[LayerSet]:
        """The best sets of `count` layers, nearest to the full model first.

        The best set that extends the nested chain is always among them (`next_nested`); `nested` is the chain's set
        with one layer less.
        """
        layers = self._model.backbone.num_layers
        if tuple(nested) != self.chain:
            self._read(nested, keep=True)  # so that passes for its extensions begin late
        if comb(layers, count) <= MOST_SUBSETS:
            tried = list(combinations(range(layers), count))
        else:
            tried = [tuple(sorted({*nested, layer})) for layer in range(layers) if layer not in nested]
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
    def _read(self, skipped: Sequence[int], *, keep: bool = False) -> list[Tensor]:
        """Log-probabilities [N, V] of each batch at the N positions that write, without the skipped layers; with `keep`
        the states of this set are kept from now on.
        """
        model, layers = self._model, self._model.backbone.num_layers
        # The first layer in one set only. Equal sets begin at the last layer, before which there still is a kept state.
        start = 0 if keep else min({*skipped} ^ {*self.chain}, default=layers - 1)
        found = []
        for batch, known in zip(self._batches, self._states, strict=True):
            call = model._begin_call(batch.input_ids, batch.attention_mask, None)
            hidden = known[start] if start else call.embed()
            if keep:
                known.clear()
            for layer in range(start, layers):
                if keep:
                    known.append(hidden)
                if layer not in skipped:
                    hidden = run_layers(model.method, call, hidden, range(layer, layer + 1))
            call.end()
            # [N, V]: the head runs for the N writing positions alone.
            logits = model.backbone.head(model.backbone.final_norm(hidden[batch.writing]))
            found.append(logits.float().log_softmax(dim=-1))
        if keep:
            self.chain = tuple(skipped)
        return found


def next_nested(sets: Sequence[LayerSet], nested: Collection[int]) -> LayerSet:
    """The first set that contains a nested set and more."""
    return next(one for one in sets if set(nested) < set(one.skipped))
