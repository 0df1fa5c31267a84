"""When each piece of work will be done, so that the bar of a whole run moves with the clock.

Several processes do different work at once, and towards the end some have none left. A second of work therefore moves
the bar by its share of the clock: by half a second where two processes work, by a whole one where one works alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from adaptive_bench.runs.chains import Chain, Measuring

_MOST_PIECES = 1000  # where there are more, how the last ones end hardly matters


@dataclass(frozen=True)
class _Piece:
    """Work of a chain; the training is number -1. It begins after the training `after`, and may be one itself."""

    chain: int
    number: int
    seconds: float
    after: Path | None = None
    training: Path | None = None


def on_the_clock(chains: Sequence[Chain], jobs: int, alone: float = 1.0) -> list[Chain]:
    """The chains with the seconds of their works as shares of the clock; together they are how long the run takes.

    Args:
        jobs: Processes, of which each takes the next work that can be done.
        alone: Time that work takes in a process alone, as a share of its time among `jobs`.
    """
    pieces = [piece for number, chain in enumerate(chains) for piece in _pieces(number, chain)]
    spans = _spans(pieces, jobs) if len(pieces) <= _MOST_PIECES else {}
    shares = {(piece.chain, piece.number): 0.0 if spans else piece.seconds / jobs for piece in pieces}
    for start, end in pairwise(sorted({moment for span in spans.values() for moment in span})):
        active = [piece for piece, (begun, ended) in spans.items() if begun <= start and ended >= end]
        faster = alone + (1 - alone) * (len(active) - 1) / max(1, jobs - 1)
        for piece in active:
            shares[piece.chain, piece.number] += (end - start) * faster / len(active)
    return [
        Chain(
            chain.training and replace(chain.training, seconds=shares[number, -1]),
            tuple(_scaled(work, shares[number, place]) for place, work in enumerate(chain.measurings)),
        )
        for number, chain in enumerate(chains)
    ]


def _pieces(number: int, chain: Chain) -> list[_Piece]:
    training = None if chain.training is None else chain.training.cell.folder
    found = [_Piece(number, place, work.seconds, training) for place, work in enumerate(chain.measurings)]
    if chain.training is None:
        return found
    base = chain.waits_for
    return [_Piece(number, -1, chain.training.seconds, None if base is None else base.folder, training), *found]


def _spans(pieces: Sequence[_Piece], jobs: int) -> dict[_Piece, tuple[float, float]]:
    """Beginning and end of each piece."""
    free, left = [0.0] * jobs, list(pieces)
    done: dict[Path | None, float] = {None: 0.0}
    spans = {}
    while left:
        ready = [piece for piece in left if piece.after in done] or left
        piece = min(ready, key=lambda one: done.get(one.after, 0.0))  # of several the one that came first
        left.remove(piece)
        begun = max(done.get(piece.after, 0.0), min(free))
        ended = begun + piece.seconds
        free[free.index(min(free))] = ended
        if piece.training is not None:
            done[piece.training] = ended
        spans[piece] = begun, ended
    return spans


def _scaled(work: Measuring, seconds: float) -> Measuring:
    share = seconds / work.seconds if work.seconds else 0.0
    return replace(work, seconds=seconds, point_s=work.point_s * share, calibration_s=work.calibration_s * share)
