"""Computes log-likelihoods of continuations, running as few tokens as the method allows.

Equal passes run once. The last token of a continuation is only predicted, never read, so requests that differ only in
it need one pass. If decisions depend on earlier text alone (causality class C0), requests that share a context run it
once too: the context first, then all continuations from its cache. With every other method each request is a separate
sequence, in batches that depend only on the requests. Requests of different document keys share nothing, since a method
that draws at random draws separately for each document. In all cases the ledger charges every request for all its
tokens, for the dense model and the method alike: sharing is a property of the harness and does not count as a saving.

Batches are of rows of similar length that fit into memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from adaptive_bench import processes
from adaptive_bench.hardware import OutOfMemory, usable_bytes
from adaptive_bench.model.generation import padded

if TYPE_CHECKING:
    from adaptive_bench.model import AdaptiveModel

T = TypeVar("T")

# On a CPU a batch of this many slots (rows times the longest row) computes as fast per slot as a larger one. For
# smaller batches, padding costs less than another call.
_ENOUGH_SLOTS = 512
_SIMILAR = 0.75  # shorter rows than this share of the longest begin another batch
_VALUE_BYTES = 4  # fp32
# Logits that are normalised at once: enough to be fast, but little memory compared with the logits themselves.
_VALUES_AT_ONCE = 1 << 22
# Contexts shorter than this are not shared: computing them again costs less than a second call with a cache.
_SHORTEST_SHARED = 4

Answer = tuple[int, float, bool]
Clock = Callable[[Callable[[], Any]], Any]


class Scored(NamedTuple):
    """A request: its place, the tokens of context and continuation (at least one), and its document's key (0: all
    alike).
    """

    place: int
    context: tuple[int, ...]
    continuation: tuple[int, ...]
    document: int = 0


@dataclass(frozen=True)
class Pass:
    """One sequence to run: a whole one, or a context that several requests share.

    Attributes:
        token_ids: The tokens to read; the context of a whole sequence that is too long has lost its beginning.
        requests: The requests that need it, all of one document.
        scored: The last `scored` positions predict the continuations.
        tails: The tokens to read after a shared context (all but the last one of a continuation), with the requests
            that need them; empty for a whole sequence. Requests of one tail differ only in their very last token.
    """

    token_ids: tuple[int, ...]
    requests: tuple[Scored, ...]
    scored: int = 1
    tails: Mapping[tuple[int, ...], Sequence[Scored]] = field(default_factory=dict)

    @property
    def document(self) -> int:
        """The document of its requests."""
        return self.requests[0].document


def wholes(requests: Iterable[Scored], context_length: int) -> list[Pass]:
    """One pass per sequence, ordered by the sequences alone: shortest continuation first, then longest sequence."""
    members: dict[tuple[tuple[int, ...], int, int], list[Scored]] = defaultdict(list)
    for request in requests:
        # Without the last token, which is only predicted; what is left has at most `context_length` tokens.
        sequence = (request.context + request.continuation)[-(context_length + 1) : -1]
        # Equal sequences with continuations of other lengths are scored at other positions.
        members[sequence, len(request.continuation), request.document].append(request)
    passes = [Pass(sequence, tuple(some), scored) for (sequence, scored, _), some in members.items()]
    return sorted(passes, key=lambda one: (one.scored, -len(one.token_ids), one.token_ids, one.document))


def shared(requests: Sequence[Scored], context_length: int) -> tuple[list[Pass], list[Scored]]:
    """The contexts worth computing once, and the requests that share no such context.

    Only whole contexts are shared. A context that must be cut is not, since the cut depends on the continuation.
    """
    members: dict[tuple[tuple[int, ...], int], list[Scored]] = defaultdict(list)
    for request in requests:
        members[request.context, request.document].append(request)
    contexts, others = [], []
    for (context, _), some in members.items():
        tails: dict[tuple[int, ...], list[Scored]] = defaultdict(list)
        for request in some:
            tails[request.continuation[:-1]].append(request)
        # `tails` are without the last token, which is never read.
        fits = len(context) + max(map(len, tails)) <= context_length
        if fits and len(tails) > 1 and len(context) >= _SHORTEST_SHARED:
            contexts.append(Pass(context, tuple(one for who in tails.values() for one in who), tails=tails))
        else:  # requests with equal sequences run once anyway (`wholes`)
            others.extend(some)
    return contexts, others


class Scorer:
    """Scores continuations.

    Args:
        batch_size: Rows in one forward pass.
        clock: Runs a model call and measures its time.
        rank, count: This process's number, and the number of processes that divide the batches, which are formed as in
            one process.

    Attributes:
        tokens: Tokens fed to the model so far, padding not counted.
    """

    def __init__(self, model: AdaptiveModel, batch_size: int, clock: Clock, rank: int = 0, count: int = 1) -> None:
        self.model = model
        self.batch_size = batch_size
        self.tokens = 0
        self._clock, self._room = clock, Room(model)
        self._rank, self._count = rank, count
        self._device = next(model.parameters()).device

    def score(self, requests: Sequence[Scored]) -> Iterator[list[Answer]]:
        """For each request, its place, its log-likelihood and whether greedy decoding would generate it; batch by
        batch, in any order. If several processes divide the batches, each yields its own ones.
        """
        for batch in islice(self._batches(requests), self._rank, None, self._count):
            yield batch()

    def _batches(self, requests: Sequence[Scored]) -> Iterator[Callable[[], list[Answer]]]:
        limit = self.model.backbone.context_length
        if not self.model.is_causal:
            # All continuations of a batch have one length, so that the head runs on the same positions at any batch
            # size.
            for scored, members in groupby(wholes(requests, limit), lambda one: one.scored):
                some = list(members)
                length = max(len(one.token_ids) for one in some)
                # If results depend on the batch, all documents need one size.
                if not self._room.fits(self.batch_size, length, scored):
                    raise OutOfMemory(
                        f"{self.batch_size} sequences of {length} tokens at a time do not fit into memory."
                    )
                yield from (partial(self._score_wholes, one) for one in fixed_batches(some, self.batch_size))
            return
        contexts, others = shared(requests, limit)
        fits = self._room.fits
        for batch in batches(contexts, self.batch_size, length=lambda one: len(one.token_ids), fits=fits):
            yield partial(self._score_shared, batch)
        for scored, members in groupby(wholes(others, limit), lambda one: one.scored):
            room = partial(fits, scored=scored)
            similar = batches(list(members), self.batch_size, length=lambda one: len(one.token_ids), fits=room)
            yield from (partial(self._score_wholes, one) for one in similar)

    def _score_wholes(self, batch: list[Pass]) -> list[Answer]:
        """Score whole sequences. For causal methods, padding goes to the right, where causality hides it, so that no
        mask is needed if no token skips.
        """
        left = not self.model.is_causal
        input_ids, attention_mask = padded([one.token_ids for one in batch], self._device, left=left)
        scored, places = batch[0].scored, torch.arange(input_ids.shape[1], device=self._device)
        # [B, 1]: one past each row's last real token.
        ends = torch.full_like(attention_mask[:, :1], len(places)) if left else attention_mask.sum(dim=1, keepdim=True)
        logits = self._run(
            input_ids=input_ids,
            attention_mask=attention_mask,
            # The first of the scored positions holds the last token of the prompt, so it is not marked.
            continuation_mask=(places > ends - scored) & (places < ends),
            # [B, scored]: positions whose next token is one of the continuation.
            logits_to_keep=ends - scored + places[:scored],
            requests=[len(one.requests) for one in batch],
            documents=self._documents(batch),
        )
        return self._judge(logits, [(row, one) for row, whole in enumerate(batch) for one in whole.requests])

    def _score_shared(self, batch: list[Pass]) -> list[Answer]:
        """Score shared contexts: run the contexts first, then the tails that follow them, from their cache."""
        # Padding goes to the right, where causality hides it, so that no mask is needed if no token skips.
        input_ids, attention_mask = padded([one.token_ids for one in batch], self._device, left=False)
        # A continuation of one token has an empty tail: the context alone answers it.
        tails = [(row, tail, who) for row, one in enumerate(batch) for tail, who in one.tails.items() if tail]
        longest = max((len(tail) for _, tail, _ in tails), default=0)
        cache = self.model.new_cache(len(batch), input_ids.shape[1] + longest) if tails else None
        logits = self._run(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=cache,
            logits_to_keep=attention_mask.sum(dim=1, keepdim=True) - 1,
            requests=[len(one.requests) for one in batch],
            documents=self._documents(batch),
        )
        members = [(row, request) for row, one in enumerate(batch) for request in one.requests]
        # The context predicts the first token of each continuation, the tails predict the rest.
        first = [(row, request._replace(continuation=request.continuation[:1])) for row, request in members]
        answers = {place: (score, greedy) for place, score, greedy in self._judge(logits, first)}
        del logits  # before the tails need memory
        before = input_ids.shape[1]  # every row of tails holds its context's keys and values too; all of it is scored
        fits: Any = lambda rows, length: self._room.fits(rows, before + length, length)  # noqa: E731
        for some in batches(tails, self.batch_size, length=lambda one: len(one[1]), fits=fits):
            assert cache is not None
            input_ids, attention_mask = padded([tail for _, tail, _ in some], self._device, left=False)
            rows = torch.tensor([row for row, *_ in some], device=self._device)
            logits = self._run(
                input_ids=input_ids,
                attention_mask=attention_mask,
                past_key_values=cache.fork(rows),
                continuation_mask=attention_mask,
                # The cache holds tokens, which would otherwise make this a call of decoding: but nothing is generated.
                phase="prefill",
                requests=[len(who) for *_, who in some],
            )
            rest = [
                (row, request._replace(continuation=request.continuation[1:]))
                for row, (*_, who) in enumerate(some)
                for request in who
            ]
            for place, score, greedy in self._judge(logits, rest):
                answers[place] = answers[place][0] + score, answers[place][1] and greedy
        return [(place, *answer) for place, answer in answers.items()]

    def _documents(self, batch: Sequence[Pass]) -> Tensor:
        return torch.tensor([one.document for one in batch], device=self._device)

    def _run(self, attention_mask: Tensor, **given: Any) -> Tensor:
        """The logits of one model call."""
        self.tokens += int(attention_mask.sum())
        logits: Tensor = self._clock(partial(self.model, attention_mask=attention_mask, **given)).logits
        return logits

    def _judge(self, logits: Tensor, members: list[tuple[int, Scored]]) -> list[Answer]:
        """The answers of requests, each of which belongs to a row of logits [B, S, V]; a shorter continuation uses the
        first positions of its row.
        """
        # Rows [S, V] of logits that are copied and normalised at once.
        some = max(1, _VALUES_AT_ONCE // logits[0].numel())
        answers: list[Answer] = []
        for start in range(0, len(members), some):
            rows, requests = zip(*members[start : start + some], strict=True)
            wanted, real = padded([one.continuation for one in requests], self._device, left=False)
            chosen = logits[torch.tensor(rows, device=self._device), : wanted.shape[1]].float()
            scores = chosen.log_softmax(dim=-1).gather(2, wanted[..., None])[..., 0]
            # [N, T]: padding counts as right.
            greedy = ((chosen.argmax(dim=-1) == wanted) | ~real.bool()).all(dim=1)
            totals = (scores * real).sum(dim=1)
            answers += zip((one.place for one in requests), totals.tolist(), greedy.tolist(), strict=True)
        return answers


class Room:
    """Estimates how many rows a model can process at once in the memory that is free now.

    A token takes memory for its keys and values in every layer, and for the activations of one branch. A scored
    position also takes memory for its logits, and for a copy of them while they are normalised.
    """

    def __init__(self, model: AdaptiveModel) -> None:
        backbone, shape = model.backbone, model.backbone.config
        heads, layers = shape.num_attention_heads, backbone.num_layers
        # Values per token in the cache: keys and values of all layers, with fewer heads under grouped-query attention.
        kept = 2 * layers * getattr(shape, "num_key_value_heads", heads) * shape.hidden_size / heads
        self._token = _VALUE_BYTES * (2 * kept + 12 * shape.hidden_size + 4 * shape.intermediate_size)
        # Per pair of tokens: eager attention holds tables of scores [heads, S, S], fused attention only a mask [S, S].
        self._pair = _VALUE_BYTES * (3 * heads if backbone.eager else 1)
        self._scored = 2 * _VALUE_BYTES * backbone.vocab_size
        # All processes use the smallest memory among them, so that they form the same batches.
        every = processes.current_group().gather(usable_bytes(next(model.parameters()).device))
        self._usable = None if None in every else min(every)

    def fits(self, rows: int, length: int, scored: int = 1) -> bool:
        """Whether `rows` rows of `length` tokens with `scored` positions of logits each fit; one row always does."""
        held = rows * (length * (self._token + length * self._pair) + scored * self._scored)
        return rows == 1 or self._usable is None or held <= self._usable

    def rows(self, most: int, length: int) -> int:
        """The number of rows that fits: `most`, halved until it does."""
        while not self.fits(most, length):
            most //= 2
        return most


def batches(
    items: Sequence[T], limit: int, *, length: Callable[[T], int], fits: Callable[[int, int], bool] = lambda *_: True
) -> Iterator[list[T]]:
    """Cut items into batches of at most `limit` rows of similar length, longest first, so that memory runs out early or
    not at all; `fits(rows, tokens)` says whether a batch of that size fits into memory.
    """
    batch: list[T] = []
    longest = 0
    for item in sorted(items, key=length, reverse=True):
        dissimilar = length(item) < _SIMILAR * longest and len(batch) * longest >= _ENOUGH_SLOTS
        full = len(batch) == limit or not fits(len(batch) + 1, longest)
        # Never empty: a single row that does not fit is tried anyway, and may still run out of memory.
        if batch and (full or dissimilar):
            yield batch
            batch = []
        longest = length(item) if not batch else longest  # items are sorted: the first is the longest
        batch.append(item)
    if batch:
        yield batch


def fixed_batches(items: Sequence[T], limit: int) -> Iterator[list[T]]:
    """Batches of `limit` items in the given order, for methods whose results depend on the batch."""
    return (list(items[start : start + limit]) for start in range(0, len(items), limit))
