"""Groups log-likelihood requests, so that equal passes run once, and contexts that several requests share run once.

The last token of a continuation is only predicted, never read, so requests that differ only in it need one pass.
Requests of different document keys share nothing, since a method that draws at random draws separately for each
document.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# Contexts shorter than this are not shared: computing them again costs less than a second call with a cache.
_SHORTEST_SHARED = 4


class Scored(NamedTuple):
    """A request to score a continuation after a context.

    Attributes:
        place: Its place among all requests.
        context: Tokens before the continuation.
        continuation: Tokens to score, at least one.
        document: Key of its document, 0 if documents make no difference.
    """

    place: int
    context: tuple[int, ...]
    continuation: tuple[int, ...]
    document: int = 0


@dataclass(frozen=True)
class Whole:
    """One sequence that runs as a whole.

    Attributes:
        token_ids: The tokens to read; a context that is too long has lost its beginning.
        scored: The last `scored` positions predict the continuations.
        requests: The requests that need this sequence; they differ only in their very last token.
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
    """The tokens to read after a shared context.

    Attributes:
        token_ids: All but the last token of the continuations; empty if they have only one token.
        requests: The requests that need this tail; they differ only in their very last token.
    """

    token_ids: tuple[int, ...]
    requests: tuple[Scored, ...]


@dataclass(frozen=True)
class Shared:
    """A context that several requests share.

    Attributes:
        token_ids: The context.
        tails: The different tails that follow it.
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
    """One pass per sequence, ordered by the sequences alone: shortest continuation first, then longest sequence."""
    members: dict[tuple[tuple[int, ...], int, int], list[Scored]] = defaultdict(list)
    for request in requests:
        sequence = (request.context + request.continuation)[-(context_length + 1) : -1]
        members[sequence, len(request.continuation), request.document].append(request)
    passes = [Whole(sequence, scored, tuple(some)) for (sequence, scored, _), some in members.items()]
    return sorted(passes, key=lambda one: (one.scored, -len(one.token_ids), one.token_ids, one.document))


def shared(requests: Sequence[Scored], context_length: int) -> tuple[list[Shared], list[Scored]]:
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
        fits = len(context) + max(map(len, tails)) <= context_length
        if fits and len(tails) > 1 and len(context) >= _SHORTEST_SHARED:
            contexts.append(Shared(context, tuple(Tail(tail, tuple(who)) for tail, who in tails.items())))
        else:  # requests with equal sequences run once anyway (`wholes`)
            others.extend(some)
    return contexts, others
