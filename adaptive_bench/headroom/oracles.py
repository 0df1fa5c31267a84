"""Oracles: what a method that knew the answers could save, per document and per token.

Per document: each document gets one static set of layers, chosen with knowledge of the answers at a given mean saving.

* gold      is chosen by the right answers and scored on the same runs (Glavas et al., arXiv 2410.20022). It is biased
            upwards, as a maximum over noisy scores.
* crossed   is chosen on one asking of the questions and scored on another, so a method that knew the documents could
            attain it. It is chosen by whether the answer is the full model's own, or by the right answers if answers
            cannot be compared. Right answers alone would overstate the headroom where the full model guesses: a guess
            that is right by luck is right again when it is asked again.

The floor is the best mixture of static sets, chosen on validation documents: the same sets at the same saving, but
without telling documents apart. Headroom is crossed minus floor, paired over documents.

Choosing one set for each document under a mean cost is a multiple-choice knapsack. It is solved as its linear
relaxation, which is exact except for one document: if the budget ends within that document's step, it takes both sets
with weights, as if a coin were tossed (Sinha and Zoltners, Operations Research 27, 1979).

Per token: early exits on the cache that earlier exits left behind. For every token that writes, one full pass on the
current cache shows which token the model would choose now, and from which layer on its predictions stay with that
choice (the stable exit). Then the token runs again up to that layer only, and leaves the K,V that the policy gives it.
Only the second run is counted, so a method that knew the exits could have this saving. The text may drift from the
dense model's, and the score says what that costs. Prompts run at full depth except for their last token, which writes
the first token of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.errors import UsageError
from adaptive_bench.method import KVPolicy, Phase, SiteView
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.interventions import Prescribed, prescribed_model
from adaptive_bench.store.measured import Floats as Floats

_TINY = 1e-12
# A document's score is averaged with its set's mean score, which counts as this many answers: if sets are alike, a
# single right answer is mostly luck.
_PRIOR_ANSWERS = 1.0


@dataclass(frozen=True)
class SetScores:
    """Results of K static sets on the same D documents in H askings; higher scores are better.

    Attributes:
        scores: [H][D, K].
        agrees: [H][D, K] whether the answer is the full model's, 0 or 1; empty if answers cannot be compared.
        priors: [K] mean scores on validation documents.
        costs: [K] 1 - net saving, over all documents.
    """

    scores: Sequence[Floats]
    agrees: Sequence[Floats]
    priors: Floats
    costs: Floats

    def __post_init__(self) -> None:
        shapes = {table.shape for table in (*self.scores, *self.agrees)}
        if len(shapes) != 1 or {len(self.priors), len(self.costs)} != {next(iter(shapes))[1]}:
            raise UsageError(
                f"Askings share documents and sets, got scores of shape {sorted(shapes)}, {len(self.priors)} priors "
                f"and {len(self.costs)} costs. Ask every set the same documents."
            )


@dataclass(frozen=True)
class AtSaving:
    """The readings at one mean saving: scores [D] of the documents, averaged over askings.

    Attributes:
        weights: [K] weights of the floor's mixture.
        floor, gold: See the module.
        crossed: See the module; `None` if there is only one asking.
    """

    weights: Floats
    floor: Floats
    gold: Floats
    crossed: Floats | None


def at_saving(askings: SetScores, saving: float) -> AtSaving | None:
    """All readings at a mean saving of net FLOPs; `None` if no set saves so much."""
    budget = 1.0 - saving
    floor = choose(askings.priors[None], askings.costs, budget)
    if floor is None:
        return None
    return AtSaving(
        weights=floor[0],
        floor=_mean([expected(floor, table) for table in askings.scores]),
        gold=_mean([expected(_chosen(table, askings.costs, budget), table) for table in askings.scores]),
        crossed=_crossed(askings, budget) if len(askings.scores) > 1 else None,
    )


def _crossed(askings: SetScores, budget: float) -> Floats:
    """The crossed reading: each asking in turn chooses the sets, which are scored by the mean of the other askings."""
    found = []
    for number, table in enumerate(askings.agrees or askings.scores):
        prior = table.mean(axis=0) if askings.agrees else askings.priors
        guess = (table + _PRIOR_ANSWERS * prior) / (1.0 + _PRIOR_ANSWERS)
        others = [other for place, other in enumerate(askings.scores) if place != number]
        found.append(expected(_chosen(guess, askings.costs, budget), _mean(others)))
    return _mean(found)


def _chosen(scores: Floats, costs: Floats, budget: float) -> Floats:
    weights = choose(scores, costs, budget)
    assert weights is not None, "the floor exists at this budget"
    return weights


def _mean(tables: Sequence[Floats]) -> Floats:
    return np.asarray(np.mean(tables, axis=0), dtype=float)


def choose(scores: ArrayLike, costs: ArrayLike, budget: float) -> Floats | None:
    """Weights [D, K] that maximise the mean score under a mean cost of at most `budget`.

    Rows sum to 1, and all rows but one select a single candidate. Among equal scores the cheaper candidate is taken.

    Args:
        scores: [D, K], higher is better.
        costs: [K], the same for every document.
        budget: Largest mean cost.

    Returns:
        The weights, or `None` if even the cheapest candidate costs more.
    """
    table, prices = np.asarray(scores, dtype=float), np.asarray(costs, dtype=float)
    if budget < prices.min() - _TINY:
        return None
    steps, weights = [], np.zeros_like(table)
    for document, row in enumerate(table):
        path = _hull(row, prices)
        weights[document, path[0]] = 1.0
        for before, after in pairwise(path):
            cost = prices[after] - prices[before]
            steps.append(((row[after] - row[before]) / cost, document, before, after, cost))
    left = len(table) * budget - float((weights @ prices).sum())
    # Slopes fall along a document's hull, so sorting keeps the steps of each document in order.
    for _, document, before, after, cost in sorted(steps, key=lambda one: -one[0]):
        share = min(1.0, left / cost)
        if share <= _TINY:
            break
        weights[document, before] -= share
        weights[document, after] += share
        left -= share * cost
    return weights


def _hull(row: Floats, prices: Floats) -> list[int]:
    """The candidates on the upper concave hull of (cost, score), from the cheapest to the best."""

    def slope(before: int, after: int) -> float:
        return float((row[after] - row[before]) / (prices[after] - prices[before]))

    path: list[int] = []
    for place in sorted(range(len(row)), key=lambda place: (prices[place], -row[place])):
        if path and (row[place] <= row[path[-1]] or prices[place] <= prices[path[-1]]):
            continue
        while len(path) > 1 and slope(path[-2], path[-1]) <= slope(path[-1], place):
            path.pop()
        path.append(place)
    return path


def expected(weights: Floats, scores: ArrayLike) -> Floats:
    """The score [D] that weights [D, K] or [1, K] give each document of a table [D, K]."""
    return np.asarray((weights * np.asarray(scores, dtype=float)).sum(axis=1), dtype=float)


def layer_predictions(model: AdaptiveModel, input_ids: Tensor, **call: Any) -> Tensor:
    """The likeliest next token after each of the L layers, [L, B, S], in a call that skips nothing.

    It is what the final norm and the head predict from the residual stream after that layer.
    """
    output = model(input_ids, output_hidden_states=True, **call)
    head, norm = model.backbone.head, model.backbone.final_norm
    early = [head(norm(state)).float().argmax(dim=-1) for state in output.hidden_states[1:-1]]
    return torch.stack([*early, output.logits.float().argmax(dim=-1)])


def stable_exits(predicted: Tensor) -> Tensor:
    """Stable exits, from 1 to L, of predictions [L, ...]."""
    meets = (predicted == predicted[-1]).int()
    kept = meets.flip(0).cumprod(dim=0).sum(dim=0)  # number of last layers that all agree
    return len(predicted) - kept + 1


class OnlineExits(AdaptiveModel):
    """The per-token oracle as a model that is evaluated like any other; made by `online_exits`.

    Attributes:
        prober: Runs the full pass of each token on a copy of the cache; its ledger is not read.
        exits: Exit depths of all tokens that wrote so far, one tensor [B] per column.
    """

    method: Prescribed
    prober: AdaptiveModel
    exits: list[Tensor]

    @torch.no_grad()
    def forward(  # type: ignore[override] # the harness gives no other arguments
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        past_key_values: AdaptiveCache | None = None,
        use_cache: bool = False,
        continuation_mask: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        phase: Phase | None = None,
        requests: Sequence[int] | None = None,
        return_logits: bool = True,
        documents: Tensor | None = None,
    ) -> CausalLMOutputWithPast:
        """Runs a call of the harness: prompts are padded on the left, and logits are of the last positions.

        Raises:
            UsageError: The call is of another kind.
        """
        batch, length = input_ids.shape
        writing = logits_to_keep if isinstance(logits_to_keep, int) else logits_to_keep.shape[-1]
        if (
            labels is not None
            or not 0 < writing <= length
            or (attention_mask is not None and not bool(attention_mask[:, -writing:].all()))
        ):
            raise UsageError(
                "The exit oracle reads texts that end with the tokens that write, without labels. Evaluate it with "
                "adaptive_bench.evaluation.evaluate."
            )
        cache = self.new_cache(batch, length) if past_key_values is None else past_key_values
        phase = phase or ("decode" if cache.get_seq_length() else "prefill")
        shared: dict[str, Any] = {"past_key_values": cache, "use_cache": True, "phase": phase, "requests": requests}
        prompt = length - writing
        if prompt:
            self._leave_at(None)
            nothing = torch.empty(0, dtype=torch.long, device=input_ids.device)
            mask = None if attention_mask is None else attention_mask[:, :prompt]
            super().forward(input_ids[:, :prompt], mask, logits_to_keep=nothing, documents=documents, **shared)
        logits: list[Tensor] = []
        for place in range(prompt, length):
            column = input_ids[:, place : place + 1]
            probe = cache.fork(torch.arange(batch, device=input_ids.device))
            told = layer_predictions(self.prober, column, past_key_values=probe, use_cache=True, phase=phase)
            exits = stable_exits(told[:, :, -1])
            self.exits.append(exits.cpu())
            self._leave_at(exits)
            left = super().forward(column, logits_to_keep=1, **shared)[0]
            logits.append(left)
        return CausalLMOutputWithPast(logits=torch.cat(logits, dim=1), past_key_values=cache if use_cache else None)

    def _leave_at(self, exits: Tensor | None) -> None:
        """Lets tokens [B, 1] run only the layers below their exits [B], or all layers if there are no exits."""

        def rule(view: SiteView) -> Tensor | None:
            return None if exits is None else (exits > view.site.layer)[:, None]

        self.method.rule = rule


def online_exits(backbone_model: PreTrainedModel, kv: KVPolicy = "recompute") -> OnlineExits:
    """The per-token oracle on a model; `kv` says what tokens that exited leave in the cache of the layers above."""
    label = f"exit_oracle_{kv}"
    model: OnlineExits = prescribed_model(backbone_model, kv=kv, looks_ahead=True, kind=OnlineExits, label=label)
    # Kept from being a submodule, since it shares the model's parameters.
    object.__setattr__(model, "prober", prescribed_model(backbone_model, kv=kv))
    model.exits = []
    return model
