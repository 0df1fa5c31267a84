"""Greedy self-speculative decoding: one model drafts with its dial turned and verifies while skipping nothing.

A round drafts up to d tokens one by one, feeds them in one call to the full model, and keeps those it would have chosen
as well plus its own next token. The text is that of plain greedy decoding whatever was drafted: a matter of latency.

Source: LayerSkip, https://arxiv.org/abs/2404.16710, "Inference using Self-Speculative Decoding". There verifying
continues from the exit layer with what drafting left in the layers below. Here drafting reads the verifier's cache
(which below the exit layer is what it would have stored itself), but verifying starts at layer 0: the early layers see
drafted tokens twice. That costs more than the paper's, and never less than plain decoding; the ledger books both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.errors import UsageError
from adaptive_bench.model.forward import ForwardModel


@dataclass(frozen=True)
class Round:
    """One round: drafting and the verifying call.

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
    """What `self_speculate` made.

    Attributes:
        tokens: New token ids.
        rounds: What each round did; the prompt's own call, which gives the first token, is none.
        past_key_values: Holds the prompt and all new tokens but the last; that as well if it is an accepted end token.
    """

    tokens: list[int]
    rounds: tuple[Round, ...]
    past_key_values: AdaptiveCache

    @property
    def drafted(self) -> int:
        """Tokens drafted in all rounds."""
        return sum(each.drafted for each in self.rounds)

    @property
    def accepted(self) -> int:
        """Drafted tokens that are in the text."""
        return sum(each.accepted for each in self.rounds)


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
    """Continue one prompt with the tokens of `model.generate` at the dial's `skip_nothing`. The dial is left as it was.

    The ledger's MACs are what was executed, drafts included. Its saved shares compare every call with a dense one,
    drafting calls too; what a text cost compares with plain decoding by `total_macs()` alone.

    Args:
        input_ids: [1, S], without padding.
        draft_dial: The dial while drafting (LayerSkip: the exit layer E).
        drafts: Most tokens to draft in a round, d >= 1; never more than the text has room for.
        max_new_tokens: At most so many new tokens, and no more than the context holds.
        eos_token_ids: The text ends after one of these (it is part of the result), and so does a draft.

    Raises:
        UsageError: More than one prompt, a prompt as long as the context, no drafts, a dial out of its range, or a
            model in `train()` mode.
    """
    context, length = model.backbone.context_length, input_ids.shape[1]
    if model.training:
        raise UsageError("self_speculate() needs a model in eval() mode, got one in train() mode. Call eval() first.")
    if input_ids.shape[0] != 1:
        raise UsageError(
            f"self_speculate() continues one prompt at a time, got {input_ids.shape[0]}: rows accept different numbers "
            "of tokens. Call it once per prompt."
        )
    if length >= context:
        raise UsageError(
            f"A prompt must be shorter than the context of {context} tokens, got {length}. Shorten the prompt."
        )
    if drafts < 1:
        raise UsageError(f"drafts must be at least 1, got {drafts}. To decode without drafts call model.generate().")
    room = min(max_new_tokens, context - length)
    draft_dial, dial_before = model.method.dial.check(draft_dial), model.dial
    try:
        return _run_rounds(model, input_ids, draft_dial, drafts, room, eos_token_ids)
    finally:
        model.dial = dial_before


def _run_rounds(
    model: ForwardModel, input_ids: Tensor, draft_dial: float, drafts: int, room: int, ends: Sequence[int]
) -> Speculation:
    full = model.dial = model.method.dial.skip_nothing
    output = model(input_ids, use_cache=True, logits_to_keep=1)
    cache: AdaptiveCache = output.past_key_values
    tokens: list[int] = output.logits[0].argmax(dim=-1).tolist()[:room]
    rounds = []
    while len(tokens) < room and tokens[-1] not in ends:
        before, waiting = cache.session.copy(), tokens[-1]  # the last token is known, but not yet in the cache

        model.dial, draft = draft_dial, [waiting]
        for _ in range(min(drafts, room - len(tokens) - 1)):  # the verifier's own token needs room as well
            draft += _choices(model, cache, draft[-1:])
            if draft[-1] in ends:
                break
        cache.rewind(before)  # also where nothing was skipped: what a method remembers of a draft must not stay

        model.dial = full
        chosen = _choices(model, cache, draft)
        guesses = draft[1:]
        accepted = next((n for n, guess in enumerate(guesses) if guess != chosen[n]), len(guesses))
        if accepted < len(guesses):
            cache.rewind(before.after(torch.tensor([draft[: accepted + 1]], device=input_ids.device)))
        ended = accepted > 0 and guesses[accepted - 1] in ends
        tokens += chosen[:accepted] if ended else chosen[: accepted + 1]
        rounds.append(Round(len(guesses), accepted, cache.get_seq_length()))
    return Speculation(tokens, tuple(rounds), cache)


def _choices(model: ForwardModel, cache: AdaptiveCache, tokens: list[int]) -> list[int]:
    """The most likely token after each of these, which join the cache."""
    ids = torch.tensor([tokens], device=cache.device)
    output = model(ids, past_key_values=cache, use_cache=True)
    return output.logits[0].argmax(dim=-1).tolist()
