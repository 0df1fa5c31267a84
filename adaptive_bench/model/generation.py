"""Generates text with a cache. Finished rows leave the batch, and new prompts may take their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopPLogitsWarper

from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.errors import UsageError
from adaptive_bench.model.arguments import check_ids, check_mask
from adaptive_bench.model.forward import ForwardModel

Choose = Callable[[Tensor], Tensor]

# A batch is refilled when this share of its rows is free, because reading prompts one by one would cost a call each.
_REFILL_SHARE = 0.25


@torch.no_grad()
def new_tokens(
    model: ForwardModel, input_ids: Tensor, attention_mask: Tensor | None = None, *, max_new_tokens: int, **how: Any
) -> list[list[int]]:
    """The new token ids of each row of prompts [B, S], padded on the left, until it ends or the context is full.

    A simpler `AdaptiveModel.generate`; `how` are further arguments of `generate_queue`.
    """
    prompts = checked_prompts(model, input_ids, attention_mask)
    return generate_queue(model, prompts, rows=max(1, len(prompts)), max_new_tokens=max_new_tokens, **how)


def checked_prompts(model: ForwardModel, input_ids: Tensor, attention_mask: Tensor | None = None) -> list[list[int]]:
    """The tokens of each of some prompts [B, S], without padding; prompts that cannot be continued are refused."""
    check_ids(input_ids)
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    check_mask(mask, input_ids)
    model.backbone.check_vocabulary(input_ids)
    if not bool(mask.any(dim=1).all()):
        empty = int((~mask.any(dim=1)).nonzero()[0, 0])
        raise UsageError(
            f"Each row of prompts has one token or more, got row {empty} with padding alone. Leave the row out, or "
            f"give it the tokenizer's start token."
        )
    if not bool(mask[:, -1].all()):
        raise UsageError(
            "generate() needs prompts padded on the left, got a row that ends in padding. Set padding_side='left'."
        )
    pairs = zip(input_ids.tolist(), mask.bool().tolist(), strict=True)
    prompts = [[token for token, is_real in zip(*row, strict=True) if is_real] for row in pairs]
    _check_mode_and_length(model, max(map(len, prompts)))
    return prompts


def _check_mode_and_length(model: ForwardModel, longest: int) -> None:
    if model.training:
        raise UsageError("generate() needs a model in eval() mode, got one in train() mode. Call eval() first.")
    context = model.backbone.context_length
    if longest >= context:
        raise UsageError(
            f"A prompt must be shorter than the context of {context} tokens, got {longest}. "
            "Shorten the prompt, use fewer shots, or choose a model with a longer context."
        )


def likeliest(logits: Tensor) -> Tensor:
    """The token [B] with the largest of the logits [B, V]."""
    return logits.argmax(dim=-1)


def sampler(temperature: float, top_p: float, seed: int, device: torch.device) -> Choose:
    """A function that draws the next token [B] from logits [B, V], with its own random generator."""
    generator = torch.Generator(device=device).manual_seed(seed)
    processors = LogitsProcessorList([TemperatureLogitsWarper(float(temperature))])
    if top_p < 1.0:
        processors.append(TopPLogitsWarper(top_p))
    no_text: Any = torch.empty(0, dtype=torch.long, device=device)  # neither processor reads the text

    def choose(logits: Tensor) -> Tensor:
        scores = processors(no_text, logits.float())
        return torch.multinomial(scores.softmax(dim=-1), 1, generator=generator)[:, 0]

    return choose


@torch.no_grad()
def generate_queue(
    model: ForwardModel,
    prompts: Sequence[Sequence[int]],
    *,
    rows: int,
    max_new_tokens: int,
    eos_token_ids: Sequence[int] = (),
    stop: Callable[[Sequence[int]], bool] | None = None,
    choose: Choose = likeliest,
    ended: Callable[[int], None] | None = None,
    documents: Sequence[int] | None = None,
    processors: LogitsProcessorList | None = None,
) -> list[list[int]]:
    """The new token ids of any number of prompts; as texts end, the next prompts join the batch.

    With more prompts than rows, a text must not depend on the others in its batch: the method must be of causality
    class C0 with a KV policy other than `defer`, and `choose` must not draw at random.

    Args:
        prompts: Token ids, in the order in which to begin them; sorting by length reduces padding.
        rows: Largest number of texts in the batch.
        eos_token_ids: A text ends after one of these tokens, which is part of the result.
        stop: Called with a text's new tokens; returning true ends the text.
        ended: Called with the number of texts that have just ended.
        documents: Key of each prompt's document, for random draws; see `ForwardModel.forward`.
        processors: Change the logits before a token is chosen; see `tokenization.logits_processors`.
    """
    _check_mode_and_length(model, max(map(len, prompts), default=0))
    ends, device = frozenset(eos_token_ids), next(model.parameters()).device

    def next_tokens(texts: Sequence[Text], logits: Tensor) -> Tensor:
        if not processors:
            return choose(logits)
        # Row by row, so that padding does not count as repeated words.
        read: Any = (torch.tensor([[*text.prompt, *text.tokens]], device=device) for text in texts)
        pairs = zip(read, logits.float().split(1), strict=True)
        return choose(torch.cat([processors(words, row) for words, row in pairs]))

    def is_done(text: Text) -> bool:
        return text.tokens[-1] in ends or (stop is not None and stop(text.tokens))

    # 0 is the key of no document: draws then depend on the text alone.
    keys = [0] * len(prompts) if documents is None else documents
    texts = texts_of(model, prompts, max_new_tokens, keys)
    batch = Batch(model, next_tokens, is_done)
    # A text without room gets no token, not even the one that reading its prompt would give.
    waiting = [text for text in texts if text.room > 0]
    while waiting or batch.texts:
        free = rows - len(batch.texts)
        if waiting and free >= max(1, int(rows * _REFILL_SHARE)):
            finished = batch.begin(waiting[:free])
            waiting = waiting[free:]
        else:
            finished = batch.step()
        if ended is not None and finished:
            ended(finished)
    return [text.tokens for text in texts]


@dataclass
class Text:
    """The text generated after one prompt: at most `room` tokens. `place` is the prompt's number."""

    place: int
    prompt: list[int]
    room: int
    document: int
    tokens: list[int] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another token."""
        return len(self.tokens) >= self.room


def texts_of(
    model: ForwardModel, prompts: Sequence[Sequence[int]], max_new_tokens: int, documents: Sequence[int]
) -> list[Text]:
    """The texts that begin with some prompts; each ends with the context at the latest."""
    context = model.backbone.context_length
    return [
        Text(place, list(prompt), min(max_new_tokens, context - len(prompt)), document)
        for place, (prompt, document) in enumerate(zip(prompts, documents, strict=True))
    ]


class Batch:
    """Texts that are generated together, one per row of the cache: they join, every step adds a token to each, and
    finished ones leave.

    Args:
        choose: The next tokens [B] of texts, from their logits [B, V].
        is_done: Whether a text ends with its newest token, even if it has room left.
    """

    def __init__(
        self,
        model: ForwardModel,
        choose: Callable[[Sequence[Text], Tensor], Tensor],
        is_done: Callable[[Text], bool],
    ) -> None:
        self._model, self._choose, self._is_done = model, choose, is_done
        self._device = next(model.parameters()).device
        self.texts: list[Text] = []
        self._cache: AdaptiveCache | None = None
        self._newest: Tensor | None = None

    def begin(self, texts: Sequence[Text]) -> int:
        """Read the prompts of more texts and generate the first token of each; returns how many ended with it."""
        input_ids, attention_mask = padded([text.prompt for text in texts], self._device, left=True)
        documents = torch.tensor([text.document for text in texts], device=self._device)
        output = self._model(input_ids, attention_mask, use_cache=True, logits_to_keep=1, documents=documents)
        remaining, cache, newest = self._write(texts, output.past_key_values, output.logits)
        # If every text has ended, `_write` left the cache as it was; the new rows replace it.
        if self._cache is None or self._newest is None or not self.texts:
            self._cache, self._newest = cache, newest
        elif remaining:
            self._cache.join(cache)
            self._newest = torch.cat([self._newest, newest])
        self.texts = self.texts + remaining
        return len(texts) - len(remaining)

    def step(self) -> int:
        """Generate one more token of every text; returns how many ended with it."""
        assert self._newest is not None, "there is a text to go on with"
        before = len(self.texts)
        output = self._model(self._newest[:, None], past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        self.texts, self._cache, self._newest = self._write(self.texts, output.past_key_values, output.logits)
        return before - len(self.texts)

    def _write(
        self, texts: Sequence[Text], cache: AdaptiveCache, logits: Tensor
    ) -> tuple[list[Text], AdaptiveCache, Tensor]:
        """Choose a token for every text; returns the texts that continue, their rows of the cache and their tokens."""
        chosen = self._choose(texts, logits[:, -1])
        for text, token in zip(texts, chosen.tolist(), strict=True):
            text.tokens.append(token)
        alive = [row for row, text in enumerate(texts) if not (self._is_done(text) or text.is_full)]
        # If nobody is left, the cache is not used again, and selecting no rows would be work for nothing.
        if 0 < len(alive) < len(texts):
            rows = torch.tensor(alive, device=chosen.device)
            cache.select_rows(rows, np.array(alive))
            chosen = chosen[rows]
        return [texts[row] for row in alive], cache, chosen


def padded(rows: Sequence[Sequence[int]], device: torch.device, *, left: bool) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask [B, S]. The padding value is never read, so any valid id will do."""
    length = max(map(len, rows))
    ids, mask = [], []
    for row in rows:
        padding, real = [0] * (length - len(row)), [1] * len(row)
        ids.append([*padding, *row] if left else [*row, *padding])
        mask.append(padding + real if left else real + padding)
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)
