"""Exits of the dense text, replayed on it: with exact K,V (`defer`) or those a policy leaves, and given to others.

The tokens are those of the text whatever is predicted, so two replays differ in who exits where and in nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from adaptive_bench.headroom.exits import (
    first_exits,
    lucky_exits,
    predictions,
    stable_exits,
)
from adaptive_bench.headroom.similarity import cosines
from adaptive_bench.headroom.texts import TaskText, TextBatch, text_batches
from adaptive_bench.headroom.watched import WatchedModel
from adaptive_bench.method import KVPolicy, SiteView
from adaptive_bench.model.prescribed import prescribed_model


@dataclass(frozen=True)
class DenseText:
    """What the full model predicts on texts, at the N positions that write, batch after batch in (row, position) order.

    Attributes:
        batches: The texts.
        predicted: Predictions [L, N] after each layer.
        similarity: Mean cosine of the residual stream after each layer with the last, over all tokens.
        texts: [N] which text of its batch each position belongs to, rising: where one text ends and another begins.
    """

    batches: Sequence[TextBatch]
    predicted: Tensor
    similarity: Sequence[float]
    texts: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, backbone_model: PreTrainedModel, texts: Sequence[TaskText], rows: int) -> DenseText:
        """Read the texts with every layer."""
        model: WatchedModel = prescribed_model(backbone_model, kind=WatchedModel)
        found = list(text_batches(texts, rows, backbone_model.device))
        predicted, owners, before = [], [], 0
        sums, tokens = torch.zeros(model.backbone.num_layers, dtype=torch.float64), 0
        for batch in found:
            model(batch.input_ids, batch.attention_mask, logits_to_keep=1)
            predicted.append(predictions(model.backbone, [state[batch.writing] for state in model.states]).cpu())
            real = batch.attention_mask.bool()
            sums += cosines([state[real] for state in model.states]).double().sum(dim=1).cpu()
            tokens += int(real.sum())
            owners.append(batch.writing.nonzero()[:, 0].cpu() + before)
            before += len(batch.input_ids)
        return cls(found, torch.cat(predicted, dim=1), (sums / tokens).tolist(), torch.cat(owners))

    @property
    def first(self) -> Tensor:
        """First exits [N]."""
        return first_exits(self.predicted)

    @property
    def stable(self) -> Tensor:
        """Stable exits [N]."""
        return stable_exits(self.predicted)

    def lucky(self, seed: int) -> Tensor:
        """First exits [N] towards the prediction of another position."""
        return lucky_exits(self.predicted, seed)


@dataclass(frozen=True)
class Replay:
    """A replay of exits.

    Attributes:
        agreement: Share of the positions that write whose prediction is the full model's.
        saved: Shares saved of the dense model, by the ledger: `tokens`, `core`, `net` ...
    """

    agreement: float
    saved: dict[str, float | None]


@torch.no_grad()
def replay(
    backbone_model: PreTrainedModel, dense: DenseText, exits: Tensor, kv: KVPolicy, waits_before: int = 0
) -> Replay:
    """Run the texts with each position that writes leaving at its exit [N]; all others run every layer.

    Args:
        kv: What a token that left leaves above its exit. With `defer` everybody whose exit is at most `waits_before`
            waits there, and nobody leaves elsewhere.
    """
    model = prescribed_model(backbone_model, kv=kv)
    model.method.waits_before = waits_before
    layers, start, agreeing = model.backbone.num_layers, 0, 0
    for batch in dense.batches:
        count = int(batch.writing.sum())
        depths = torch.full(batch.input_ids.shape, layers, device=batch.input_ids.device)
        depths[batch.writing] = exits[start : start + count].to(depths)

        def rule(view: SiteView, depths: Tensor = depths) -> Tensor | None:
            if kv == "defer" and view.site.layer < waits_before:
                return None
            return depths > view.site.layer

        model.method.rule = rule
        logits = model(batch.input_ids, batch.attention_mask).logits[batch.writing]
        agreeing += int((logits.float().argmax(dim=-1).cpu() == dense.predicted[-1, start : start + count]).sum())
        start += count
    return Replay(agreeing / start, model.compute_report()["saved"])
