"""Drafting: tokens written one by one at a dial that skips, for rows that stop at different places; and which layers of
what was drafted a verification need not run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.method import Decision, SiteView
from adaptive_bench.model.forward import ForwardModel


@dataclass(frozen=True)
class Drafts:
    """What B rows drafted, as the columns of one call: every row's last token stands in the last of D + 1 columns.

    Attributes:
        ids: [B, D + 1]; the first token of a row was known before, the others are its guesses.
        valid: Boolean [B, D + 1], a row's own tokens; known to the host.
        guesses: Of every row.
    """

    ids: Tensor
    valid: np.ndarray
    guesses: list[list[int]]

    @property
    def mask(self) -> Tensor | None:
        """Attention mask [B, D + 1]; `None` where no row stopped before another."""
        return None if self.valid.all() else torch.from_numpy(self.valid)


class AlikeLayers:
    """The first layers that draft and verification execute alike, and what the draft had before each of them.

    A method says so where it decides before any layer runs (`decide_ahead`) and has every token execute these layers
    unscaled at both dials. Then what the draft stored and computed is what the verifier would. Decisions made from
    hidden states may carry something from layer to layer, and share none.

    Attributes:
        count: Such layers in all calls of the round so far, never all of them.
        states: Of each of these calls, the residual stream [B, S, H] before each layer up to that one.
    """

    def __init__(self, layers: int, *, branches: bool) -> None:
        self._of_verifier, self._per_layer = layers - 1, 2 if branches else 1
        self.begin_round()

    def begin_round(self) -> None:
        """Forget what was drafted."""
        self.count: int = self._of_verifier
        self.states: list[list[Tensor]] = []

    def note_verifier(self, view: SiteView, decision: Decision) -> None:
        """Listens to a call that skips nothing."""
        self._of_verifier = min(self._of_verifier, self._plain_layers(view))

    def note_draft(self, view: SiteView, decision: Decision) -> None:
        """Listens to a call of the draft."""
        layer = view.site.layer
        if view.site.branch == "mlp":
            return
        if layer == 0:
            self.count = min(self.count, self._plain_layers(view))
            self.states.append([])
        if layer <= self.count:
            self.states[-1].append(view.hidden)

    def _plain_layers(self, view: SiteView) -> int:
        ahead = view.call.ahead or ()
        return next((place for place, one in enumerate(ahead) if not is_plain(one)), len(ahead)) // self._per_layer


def is_plain(decision: Decision) -> bool:
    """Whether every token executes the site as the backbone does."""
    return all(part is None for part in (decision.keep, decision.scale, decision.input_scale, decision.otherwise))


def draft(
    model: ForwardModel,
    cache: AdaptiveCache,
    waiting: Sequence[int],
    most: Sequence[int],
    ends: frozenset[int],
) -> Drafts:
    """Guess on at the model's dial; the cache takes in what is fed.

    Args:
        waiting: [B] the last token of each text, not yet in the cache.
        most: [B] guesses each row has room for.
        ends: A row stops after guessing one of these.
    """
    newest = torch.tensor(waiting, device=cache.device)
    going = np.array(most) > 0
    columns, valid = [], []
    guesses: list[list[int]] = [[] for _ in waiting]
    while going.any():
        columns.append(newest)
        valid.append(going.copy())
        mask = None if going.all() else torch.from_numpy(going[:, None].copy())
        output = model(newest[:, None], mask, past_key_values=cache, use_cache=True, logits_to_keep=1)
        likeliest = output.logits[:, -1].argmax(dim=-1)
        newest = torch.where(torch.from_numpy(going).to(newest.device), likeliest, newest)
        tokens = newest.tolist()
        for row in np.flatnonzero(going).tolist():
            guesses[row].append(tokens[row])
            going[row] = tokens[row] not in ends and len(guesses[row]) < most[row]
    columns.append(newest)
    valid.append(np.ones_like(going))
    return Drafts(torch.stack(columns, dim=1), np.stack(valid, axis=1), guesses)
