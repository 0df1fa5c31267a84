"""What log-likelihood requests have in common: equal passes run once, and so do contexts that several requests share.

The last token of a continuation is only predicted, never read. Requests that differ in nothing else are one pass.
Requests of documents that are told apart share nothing: a method that draws at random draws anew for each document.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# Below this, computing a context again costs less than a second call with a cache.
_SHORTEST_SHARED = 4


class Scored(NamedTuple):
    """A request: where its answer goes, and what is scored after what.

    Attributes:
        place: Among all requests.
        context: Tokens before the continuation.
        continuation: Tokens to score, at least one.
        document: Key of the document it belongs to, 0 where that makes no difference.
    """

    place: int
    context: tuple[int, ...]
    continuation: tuple[int, ...]
    document: int = 0


@dataclass(frozen=True)
class Whole:
    """One sequence for one forward pass of its own.

    Attributes:
        token_ids: The tokens read; a context that is too long has lost its beginning.
        scored: The last `scored` positions predict the continuations.
        requests: Those that need this pass; they differ in their very last token alone.
    """

    token_ids: tuple[int, ...]
    scored: int
    requests: tuple[Scored, ...]

    @property
    def document(self) -> int:
        """The document of all its requests."""
        return self.requests[0].document


@dataclass(frozen=True)
class Tail:
    """What is read after a shared context.

    Attributes:
        token_ids: All but the last token of the continuations; empty if they have one only.
        requests: Those that need it; they differ in their very last token alone.
    """

    token_ids: tuple[int, ...]
    requests: tuple[Scored, ...]


@dataclass(frozen=True)
class Shared:
    """A context that several requests share.

    Attributes:
        token_ids: The context.
        tails: What follows it, each once.
    """

    token_ids: tuple[int, ...]
    tails: tuple[Tail, ...]

    @property
    def requests(self) -> tuple[Scored, ...]:
        """All requests that share the context."""
        return tuple(request for tail in self.tails for request in tail.requests)

    @property
    def document(self) -> int:
        """The document of all its requests."""
        return self.tails[0].requests[0].document


def wholes(requests: Iterable[Scored], context_length: int) -> list[Whole]:
    """A pass for each sequence, in an order that depends on nothing but the sequences: shortest continuation first,
    then longest sequence first.
    """
    members: dict[tuple[tuple[int, ...], int, int], list[Scored]] = defaultdict(list)
    for request in requests:
        sequence = (request.context + request.continuation)[-(context_length + 1) : -1]
        members[sequence, len(request.continuation), request.document].append(request)
    passes = [Whole(sequence, scored, tuple(some)) for (sequence, scored, _), some in members.items()]
    return sorted(passes, key=lambda one: (one.scored, -len(one.token_ids), one.token_ids, one.document))


def shared(requests: Sequence[Scored], context_length: int) -> tuple[list[Shared], list[Scored]]:
    """The contexts worth computing once, and the requests that share none.

    A context is shared whole: one that has to be cut, more or less according to its continuation, is not.
    """
    members: dict[tuple[tuple[int, ...], int], list[Scored]] = defaultdict(list)
    for request in requests:
        members[request.context, request.document].append(request)
    contexts, others = [], []
    for (context, _), some in members.items():
        tails: dict[tuple[int, ...], list[Scored]] = defaultdict(list)
        for request in some:
            tails[request.continuation[:-1]].append(request)
        fits = len(context) + max(map(len, tails)) <= context_length
        if fits and len(tails) > 1 and len(context) >= _SHORTEST_SHARED:
            contexts.append(Shared(context, tuple(Tail(tail, tuple(who)) for tail, who in tails.items())))
        else:  # one sequence for all of them runs once anyway
            others.extend(some)
    return contexts, others
