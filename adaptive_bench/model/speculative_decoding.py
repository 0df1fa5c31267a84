"""Greedy self-speculative decoding: one model drafts with its dial turned and verifies while skipping nothing.

In a round every row of a batch drafts up to d tokens one by one; one call of the full model takes them all, and each
row keeps its first guesses that the full model would have chosen as well, and the full model's own next token. The text
is that of plain greedy decoding whatever was drafted: a matter of latency.

Verifying starts above the layers that both execute alike (LayerSkip: at the exit layer), with the states and K,V that
drafting left there; the last guess, which drafting did not feed, goes through these layers first. All other K,V of a
draft are dropped and computed again. After a round the cache holds what plain decoding would have stored.

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
        accepted: Of those, the first so many that the verifier chose as well.
        cached: Tokens in the cache afterwards: those before, the last token of the text so far, and the accepted ones.
    """

    drafted: int
    accepted: int
    cached: int


@dataclass(frozen=True)
class Speculation:
    """What `self_speculate` made of B prompts.

    Attributes:
        tokens: New token ids of each.
        rounds: What each row did in each round; the prompts' own call, which gives the first tokens, is none.
        books: A ledger for each part of the work: reading prompts, drafting and verifying.
        caches: Where asked for, each row's cache when its text ended: the prompt and all new tokens but the last; that
            as well if it is an accepted end token.
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
        """Drafted tokens that are in the texts."""
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
    """Continue prompts with the tokens of `model.generate` at the dial's `skip_nothing`. The dial is left as it was.

    The ledger's MACs are what was executed, drafts included. Its saved shares compare every call with a dense one,
    drafting calls too; what texts cost compares with plain decoding by `total_macs()` alone.

    Args:
        input_ids: [B, S] prompts, padded on the left.
        attention_mask: [B, S], 0 for padding.
        draft_dial: The dial while drafting (LayerSkip: the exit layer E).
        drafts: Most tokens a row drafts in a round, d >= 1; never more than its text has room for.
        max_new_tokens: At most so many new tokens a row, and no more than the context holds.
        eos_token_ids: A text ends after one of these (it is part of the result), and so does a draft.
        keep_caches: Give every row's cache.
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
    """What is written after one prompt: at most `room` tokens."""

    room: int
    tokens: list[int] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    cache: AdaptiveCache | None = None

    @property
    def left(self) -> int:
        return self.room - len(self.tokens)


@dataclass
class _Run:
    """Texts that are written together; finished ones leave.

    Attributes:
        texts: Those in the batch, one for each row of the cache.
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
        """Write the first token of every text."""
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
        """Draft and verify: one token or more for every text."""
        before = self.cache.session.copy()
        most = [min(self.drafts, text.left - 1) for text in self.texts]  # the verifier's own token needs room as well
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
            self.cache.rewind(before)  # also where nothing was skipped: what a method remembers of a draft goes
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
            self.cache.rewind(self.cache.session.copy())  # slots at the end that were the others' are free again
        self.texts = [self.texts[row] for row in alive]
        if alive:
            self.cache.close_up()

    @contextmanager
    def _work(self, part: Part, dial: float, listener: Listener | None = None) -> Iterator[None]:
        """Calls within the block run at a dial, are booked apart, and may be listened to."""
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
