"""Self-speculation with exits known in advance: a bound on time where reading the weights is what takes it.

A round drafts d tokens, each by its own first exit, and verifies them with one pass through all L layers, which gives
one token more: (sum of exits + L) / (d + 1) layer passes a token. It saves no FLOPs: every token runs L layers anyway.
"""

from __future__ import annotations

from collections.abc import Sequence


def passes_per_token(exits: Sequence[int], layers: int, drafts: int) -> float:
    """Layer passes a token of a text whose rounds all draft `drafts` tokens, but for the last, which ends with it."""
    total, place = 0, 0
    while place < len(exits):
        drafted = exits[place : place + min(drafts, len(exits) - place - 1)]  # the last one is the verifier's own
        total += sum(drafted) + layers
        place += len(drafted) + 1
    return total / len(exits)


def fewest_passes_per_token(exits: Sequence[int], layers: int) -> float:
    """The same with the best number of drafts in every round, by dynamic programming over the text."""
    count = len(exits)
    cheapest = [0.0] * (count + 1)
    for start in range(count - 1, -1, -1):
        drafted, best = 0.0, float("inf")
        for end in range(start, count):  # tokens start .. end - 1 are drafted, the verifier gives token `end`
            best = min(best, drafted + layers + cheapest[end + 1])
            drafted += exits[end]
        cheapest[start] = best
    return cheapest[0] / count
