"""Greedy self-speculative decoding: one model drafts at another dial value and verifies while skipping nothing.

In a round every row of a batch drafts up to d tokens one by one. One call of the full model reads all of them, and each
row keeps its leading guesses that the full model would have chosen too, plus the full model's own next token. The text
is always that of plain greedy decoding; drafting only changes the latency.

Verification starts above the layers that draft and verifier execute alike (LayerSkip: at the exit layer), with the
states and K,V that drafting left there. The last guess, which drafting did not feed, runs through these layers first.
All other K,V of a draft are dropped and recomputed. After a round the cache holds what plain decoding would store.

Sources: LayerSkip, https://arxiv.org/abs/2404.16710, "Inference using Self-Speculative Decoding" (the shared layers);
Draft & Verify, https://arxiv.org/abs/2309.08168 (drafts from any subset of layers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.engine.ledger import Ledger
from adaptive_bench.errors import UsageError
from adaptive_bench.method import Decision, Session, SiteView
from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.model.generation import check_prompts

Part = Literal["prompt", "draft", "verification"]
Listener = Callable[[SiteView, Decision], None]


@dataclass(frozen=True)
class Round:
    """One row in one round.

    Attributes:
        drafted: Tokens drafted, 0 .. d.
        accepted: Number of leading drafted tokens that the verifier chose too.
        cached: Tokens in the cache afterwards: earlier tokens, the last token of the text so far, and accepted ones.
    """

    drafted: int
    accepted: int
    cached: int


@dataclass(frozen=True)
class Speculation:
    """The result of `self_speculate` for B prompts.

    Attributes:
        tokens: New token ids of each prompt.
        rounds: Each row's rounds; the call that reads the prompts and gives the first tokens is no round.
        books: A ledger for each part of the work: reading prompts, drafting and verifying.
        caches: On request, each row's cache when its text ended: the prompt and all new tokens but the last. It holds
            the last token too if that is an accepted end token.
    """

    tokens: list[list[int]]
    rounds: list[list[Round]]
    books: dict[Part, Ledger]
    caches: list[AdaptiveCache] | None

    @property
    def drafted(self) -> int:
        """Tokens drafted in all rounds of all rows."""
        return sum(each.drafted for row in self.rounds for each in row)

    @property
    def accepted(self) -> int:
        """Drafted tokens that were accepted into the texts."""
        return sum(each.accepted for row in self.rounds for each in row)


@torch.no_grad()
def self_speculate(
    model: ForwardModel,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    draft_dial: float,
    drafts: int,
    max_new_tokens: int,
    eos_token_ids: Sequence[int] = (),
    keep_caches: bool = False,
) -> Speculation:
    """Continue prompts with the same tokens as `model.generate` at the dial's `skip_nothing`. The dial is restored.

    The ledger's MACs are all that was executed, including drafts. Its saved shares compare every call, including
    drafting calls, with a dense call; to compare the cost of texts with plain decoding, use only `total_macs()`.

    Args:
        input_ids: [B, S] prompts, padded on the left.
        attention_mask: [B, S], 0 for padding.
        draft_dial: The dial while drafting (LayerSkip: the exit layer E).
        drafts: Largest number of tokens that a row drafts in a round, d >= 1; limited by the room left in its text.
        max_new_tokens: Largest number of new tokens per row, limited by the context.
        eos_token_ids: A text ends after one of these tokens, which is part of the result; a draft ends there too.
        keep_caches: Return every row's cache.
    """
    check_prompts(model, input_ids, attention_mask)
    if drafts < 1:
        raise UsageError(f"drafts must be at least 1, got {drafts}. To decode without drafts call model.generate().")
    context = model.backbone.context_length
    masks = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    texts = [_Text(min(max_new_tokens, context - length)) for length in masks.sum(dim=1).tolist()]
    draft_dial, dial_before, ledger = model.method.dial.check(draft_dial), model.dial, model.ledger
    run = _Run(model, draft_dial, drafts, frozenset(eos_token_ids), keep_caches)
    try:
        run.read_prompts(texts, input_ids, attention_mask)
        while run.texts:
            run.round()
    finally:
        model.method.value, model.ledger = dial_before, ledger
        for part in run.books.values():
            ledger.add(part.counts())
    caches = [text.cache for text in texts if text.cache is not None] if keep_caches else None
    return Speculation([text.tokens for text in texts], [text.rounds for text in texts], run.books, caches)


@dataclass
class _Text:
    """The text generated after one prompt: at most `room` tokens."""

    room: int
    tokens: list[int] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    cache: AdaptiveCache | None = None

    @property
    def left(self) -> int:
        return self.room - len(self.tokens)


@dataclass
class _Run:
    """Texts that are generated together; finished texts leave.

    Attributes:
        texts: The texts in the batch, one for each row of the cache.
    """

    model: ForwardModel
    draft_dial: float
    drafts: int
    ends: frozenset[int]
    keep_caches: bool
    texts: list[_Text] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.books: dict[Part, Ledger] = {part: Ledger(self.model.backbone.costs) for part in get_args(Part)}

    def read_prompts(self, texts: list[_Text], input_ids: Tensor, attention_mask: Tensor | None) -> None:
        """Read the prompts and generate the first token of every text."""
        method = self.model.method
        self._full = method.dial.skip_nothing
        self._alike = AlikeLayers(self.model.backbone.num_layers, branches=method.unit == "branch")
        with self._work("prompt", self._full, self._alike.note_verifier):
            output = self.model(input_ids, attention_mask, use_cache=True, logits_to_keep=1)
        self.cache: AdaptiveCache = output.past_key_values
        self.texts = texts
        for text, token in zip(texts, output.logits[:, -1].argmax(dim=-1).tolist(), strict=True):
            text.tokens += [token][: text.room]
        self._drop_finished()

    def round(self) -> None:
        """Draft and verify, which adds one or more tokens to every text."""
        before = self.cache.session.copy()
        most = [min(self.drafts, text.left - 1) for text in self.texts]  # leave room for the verifier's own token
        self._alike.begin_round()
        with self._work("draft", self.draft_dial, self._alike.note_draft):
            waiting = [text.tokens[-1] for text in self.texts]
            made = draft(self.model, self.cache, waiting, most, self.ends)
        with self._work("verification", self._full):
            chosen = self._verify(before, made).argmax(dim=-1).cpu().numpy()
        kept = np.zeros_like(made.valid)
        for row, (text, guesses) in enumerate(zip(self.texts, made.guesses, strict=True)):
            own = np.flatnonzero(made.valid[row])
            best = chosen[row, own].tolist()
            accepted = next((n for n, guess in enumerate(guesses) if guess != best[n]), len(guesses))
            kept[row, own[: accepted + 1]] = True
            ended = accepted > 0 and guesses[accepted - 1] in self.ends
            text.tokens += best[:accepted] if ended else best[: accepted + 1]
        if not (kept == made.valid).all():
            self.cache.rewind(before.after(made.ids, kept))
        for row, (text, guesses) in enumerate(zip(self.texts, made.guesses, strict=True)):
            accepted = int(kept[row].sum()) - 1
            text.rounds.append(Round(len(guesses), accepted, int(self.cache.session.host_lengths[row])))
        self._drop_finished()

    def _verify(self, before: Session, made: Drafts) -> Tensor:
        """Logits [B, D + 1, V] of the full model; the cache holds all columns afterwards."""
        layers = self.model.backbone.num_layers
        start = self._alike.count if made.ids.shape[1] > 1 else 0
        if not start:
            self.cache.rewind(before)  # even if nothing was skipped: this drops the method's own state from the draft
            return self.model(made.ids, made.mask, past_key_values=self.cache, use_cache=True).logits
        drafted = [step[start] for step in self._alike.states]
        last = self.model.run_part(made.ids[:, -1:], None, self.cache, range(start))
        self.cache.rewind(before, first_layer=start)
        states = torch.cat([*drafted, last], dim=1)
        return self.model.run_part(made.ids, made.mask, self.cache, range(start, layers), states)

    def _drop_finished(self) -> None:
        alive = [row for row, text in enumerate(self.texts) if text.left > 0 and text.tokens[-1] not in self.ends]
        if self.keep_caches:
            for row in set(range(len(self.texts))) - set(alive):
                alone = len(self.texts) == 1
                one = self.cache if alone else self.cache.fork(torch.tensor([row], device=self.cache.device))
                self.texts[row].cache = one
        if alive and len(alive) < len(self.texts):
            self.cache.select_rows(torch.tensor(alive, device=self.cache.device), np.array(alive))
            self.cache.rewind(self.cache.session.copy())  # frees slots at the end that only the removed rows used
        self.texts = [self.texts[row] for row in alive]
        if alive:
            self.cache.close_up()

    @contextmanager
    def _work(self, part: Part, dial: float, listener: Listener | None = None) -> Iterator[None]:
        """Run calls in the block at a dial value, with a ledger per part of the work and an optional listener."""
        model = self.model
        model.method.value, model.ledger = dial, self.books[part]
        heard = [] if listener is None else [listener]
        model.method.listeners += heard
        try:
            yield
        finally:
            for one in heard:
                model.method.listeners.remove(one)


@dataclass(frozen=True)
class Drafts:
    """The drafts of B rows, as the D + 1 columns of one call. Every row's last token stands in the last column.

    Attributes:
        ids: [B, D + 1]; the first token of a row was known before, the others are its guesses.
        valid: Boolean [B, D + 1], the columns that hold a row's own tokens; on the host.
        guesses: The guesses of every row.
    """

    ids: Tensor
    valid: np.ndarray
    guesses: list[list[int]]

    @property
    def mask(self) -> Tensor | None:
        """Attention mask [B, D + 1]; `None` if all rows stopped together."""
        return None if self.valid.all() else torch.from_numpy(self.valid)


class AlikeLayers:
    """The first layers that draft and verification execute alike, and the draft's residual stream before each of them.

    Such layers are known only if the method decides before any layer runs (`decide_ahead`), and every token executes
    them unscaled at both dials. Then the draft stored and computed exactly what the verifier would. Decisions made from
    hidden states may carry something from layer to layer, so they share no layers.

    Attributes:
        count: Number of such layers in all calls of the round so far; never all layers.
        states: For each of these calls, the residual stream [B, S, H] before each layer, up to layer `count`.
    """

    def __init__(self, layers: int, *, branches: bool) -> None:
        self._of_verifier, self._per_layer = layers - 1, 2 if branches else 1
        self.begin_round()

    def begin_round(self) -> None:
        """Forget the drafts of the last round."""
        self.count: int = self._of_verifier
        self.states: list[list[Tensor]] = []

    def note_verifier(self, view: SiteView, decision: Decision) -> None:
        """Listener for calls that skip nothing."""
        self._of_verifier = min(self._of_verifier, self._plain_layers(view))

    def note_draft(self, view: SiteView, decision: Decision) -> None:
        """Listener for calls of the draft."""
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
    """Draft tokens at the model's dial; the cache stores the tokens that are fed.

    Args:
        waiting: [B] the last token of each text, not yet in the cache.
        most: [B] largest number of guesses per row.
        ends: A row stops after guessing one of these tokens.
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
