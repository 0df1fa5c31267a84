"""Decodes greedily by self-speculation: one model drafts at another dial value and verifies while skipping nothing.

In a round the model drafts up to d tokens one by one. One call of the full model reads all of them; the leading guesses
that the full model would have chosen too are kept, and the full model's own next token is added. The text is always
that of plain greedy decoding; drafting only changes the latency.

Verification starts above the layers that draft and verifier execute alike (LayerSkip: at the exit layer), with the
states and K,V that drafting left there. The last guess, which drafting did not feed, runs through these layers first.
All other K,V of a draft are dropped and recomputed. After a round the cache holds what plain decoding would store.

Sources: LayerSkip, https://arxiv.org/abs/2404.16710, "Inference using Self-Speculative Decoding" (the shared layers);
Draft & Verify, https://arxiv.org/abs/2309.08168 (drafts from any subset of layers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.engine.ledger import Ledger
from adaptive_bench.errors import UsageError
from adaptive_bench.method import Decision, Session, SiteView
from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.model.generation import checked_prompts

Part = Literal["prompt", "draft", "verification"]
Listener = Callable[[SiteView, Decision], None]


@dataclass(frozen=True)
class Round:
    """One round: tokens drafted (0 .. d), the number of leading ones that the verifier chose too, and the tokens in the
    cache afterwards.
    """

    drafted: int
    accepted: int
    cached: int


@dataclass(frozen=True)
class Speculation:
    """The result of `self_speculate` for one prompt."""

    tokens: list[int]  # the new ones
    rounds: list[Round]  # the call that reads the prompt and gives the first token is none
    books: dict[Part, Ledger]  # of each part of the work
    cache: AdaptiveCache  # holds all tokens but the last, and that one too if it is an accepted end token


@torch.no_grad()
def self_speculate(
    model: ForwardModel,
    input_ids: Tensor,
    *,
    draft_dial: float,
    drafts: int,
    max_new_tokens: int,
    eos_token_ids: Sequence[int] = (),
) -> Speculation:
    """Continue a prompt with the same tokens as `model.generate` at the dial's `skip_nothing`. The dial is restored.

    The ledger's MACs are all that was executed, including drafts. Its saved shares compare every call, including
    drafting calls, with a dense call; to compare the cost of texts with plain decoding, use only `total_macs()`.

    Args:
        input_ids: [1, S], one prompt.
        draft_dial: The dial while drafting (LayerSkip: the exit layer E).
        drafts: Largest number of tokens that are drafted in a round, d >= 1; limited by the room left in the text.
        max_new_tokens: Largest number of new tokens, limited by the context.
        eos_token_ids: The text ends after one of these tokens, which is part of the result; a draft ends there too.
    """
    checked_prompts(model, input_ids)
    if drafts < 1 or len(input_ids) != 1:
        raise UsageError(
            f"One prompt is continued with drafts of at least 1 token, got {len(input_ids)} prompts and drafts="
            f"{drafts}. To decode without drafts call model.generate()."
        )
    room = min(max_new_tokens, model.backbone.context_length - input_ids.shape[1])
    draft_dial, dial_before, ledger = model.method.dial.check(draft_dial), model.dial, model.ledger
    run = _Run(model, draft_dial, drafts, frozenset(eos_token_ids), room)
    try:
        run.read_prompt(input_ids)
        while len(run.tokens) < room and run.tokens[-1] not in run.ends:
            run.round()
    finally:
        model.method.value, model.ledger = dial_before, ledger
        # Also after an error or an interrupt: what ran is in the model's ledger.
        for part in run.books.values():
            ledger.add(part.counts())
    return Speculation(run.tokens, run.rounds, run.books, run.cache)


class _Run:
    cache: AdaptiveCache

    def __init__(self, model: ForwardModel, draft_dial: float, drafts: int, ends: frozenset[int], room: int) -> None:
        self.model, self.draft_dial, self.drafts, self.ends, self.room = model, draft_dial, drafts, ends, room
        self.tokens: list[int] = []
        self.rounds: list[Round] = []
        self.books: dict[Part, Ledger] = {part: Ledger(model.backbone.costs) for part in get_args(Part)}
        self._full = model.method.dial.skip_nothing
        self._alike = AlikeLayers(model.backbone.num_layers, branches=model.method.unit == "branch")

    def read_prompt(self, input_ids: Tensor) -> None:
        """Read the prompt and generate the first token."""
        with self._work("prompt", self._full, self._alike.note_verifier):
            output = self.model(input_ids, use_cache=True, logits_to_keep=1)
        self.cache = output.past_key_values
        self.tokens += output.logits[0, -1:].argmax(dim=-1).tolist()[: self.room]

    def round(self) -> None:
        """Draft and verify, which adds one or more tokens to the text."""
        before = self.cache.session.copy()
        most = min(self.drafts, self.room - len(self.tokens) - 1)  # leave room for the verifier's own token
        self._alike.begin_round()
        with self._work("draft", self.draft_dial, self._alike.note_draft):
            guesses = draft(self.model, self.cache, self.tokens[-1], most, self.ends)
        ids = torch.tensor([[self.tokens[-1], *guesses]], device=self.cache.device)
        with self._work("verification", self._full):
            best = self._verify(before, ids)[0].argmax(dim=-1).tolist()
        # `best[n]` follows the n-th token read, so it is what the n-th guess should have been.
        accepted = next((n for n, guess in enumerate(guesses) if guess != best[n]), len(guesses))
        ended = accepted > 0 and guesses[accepted - 1] in self.ends
        self.tokens += best[:accepted] if ended else best[: accepted + 1]
        # The newest token and the accepted guesses stay; wrong guesses and their K,V go.
        if accepted < len(guesses):
            self.cache.rewind(before.after(ids[:, : accepted + 1]))
        self.rounds.append(Round(len(guesses), accepted, int(self.cache.session.host_lengths[0])))

    def _verify(self, before: Session, ids: Tensor) -> Tensor:
        """Logits [1, D + 1, V] of the full model; the cache holds all D + 1 tokens afterwards."""
        layers = self.model.backbone.num_layers
        start = self._alike.count if ids.shape[1] > 1 else 0
        if not start:
            self.cache.rewind(before)  # even if nothing was skipped: this drops the method's own state from the draft
            return self.model(ids, past_key_values=self.cache, use_cache=True).logits
        drafted = [step[start] for step in self._alike.states]
        # The last guess has not run anywhere: bring it to where the others are.
        last = self.model.run_part(ids[:, -1:], self.cache, range(start))
        self.cache.rewind(before, first_layer=start)
        # [1, D + 1, H] before layer `start`: all tokens go on together.
        states = torch.cat([*drafted, last], dim=1)
        return self.model.run_part(ids, self.cache, range(start, layers), states)

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


class AlikeLayers:
    """The first layers that draft and verification execute alike, and the draft's residual stream before each of them.

    Such layers are known only if the method decides before any layer runs (`decide_ahead`), and every token executes
    them unscaled at both dials. Then the draft stored and computed exactly what the verifier would. Decisions made from
    hidden states may carry something from layer to layer, so they share no layers.

    Attributes:
        count: Number of such layers in all calls of the round so far; never all layers.
        states: For each of these calls, the residual stream [1, 1, H] before each layer, up to layer `count`.
    """

    def __init__(self, layers: int, *, branches: bool) -> None:
        self._of_verifier, self._per_layer = layers - 1, 2 if branches else 1
        self.begin_round()

    def begin_round(self) -> None:
        """Forget the draft of the last round."""
        self.count: int = self._of_verifier
        self.states: list[list[Tensor]] = []

    def note_verifier(self, view: SiteView, decision: Decision) -> None:
        """Listen to calls that skip nothing."""
        self._of_verifier = min(self._of_verifier, self._plain_layers(view))

    def note_draft(self, view: SiteView, decision: Decision) -> None:
        """Listen to calls of the draft."""
        layer = view.site.layer
        # Once per layer, before its attention.
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


def draft(model: ForwardModel, cache: AdaptiveCache, newest: int, most: int, ends: frozenset[int]) -> list[int]:
    """Draft up to `most` tokens after the newest one, which is not in the cache, or until one of `ends`."""
    guesses: list[int] = []
    # The last guess is not fed: verification reads it.
    while len(guesses) < most and not (guesses and guesses[-1] in ends):
        fed = torch.tensor([[guesses[-1] if guesses else newest]], device=cache.device)
        output = model(fed, past_key_values=cache, use_cache=True, logits_to_keep=1)
        guesses.append(int(output.logits[0, -1].argmax()))
    return guesses
