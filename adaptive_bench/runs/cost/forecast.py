"""How long a run will take yet: its work in the order in which processes take it up, at the pace found so far.

Estimates made before the run are corrected as it goes. What trainings really take says how far the estimates are off,
for evaluations as well until the first of them tell more; a work under way is judged by its own pace more and more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

_TRUST_S = 20.0  # of work that an earlier guess is worth against what is seen
Kind = Literal["train", "measure", "calibrate"]
_MOST_PIECES = 300  # where there are more, how the last ones end hardly matters


@dataclass(frozen=True)
class Piece:
    """A work of the run.

    Attributes:
        key: What it is called in progress.
        seconds: What it was expected to take.
        kind: `train`, `measure`, or `calibrate` for a measuring that calibrates first.
        after: Key of the training it comes after, if that is left to do.
    """

    key: str
    seconds: float
    kind: Kind
    after: str | None = None


@dataclass
class _Progress:
    begun_s: float
    heard_s: float  # last
    done: float = 0.0  # of the expected seconds
    over: bool = False

    @property
    def took_s(self) -> float:
        return self.heard_s - self.begun_s


class Forecast:
    """Knows the works of a run and where each stands.

    Args:
        pieces: In the order in which they are handed out.
        jobs: Processes.
        alone: Time that work takes in a process alone, as a share of its time while all processes work.
    """

    def __init__(self, pieces: Iterable[Piece], jobs: int, alone: float = 1.0) -> None:
        self.pieces = {piece.key: piece for piece in pieces}
        self.jobs, self.alone = jobs, alone
        self._progress: dict[str, _Progress] = {}

    def note(self, key: str, seconds: float, now_s: float, *, over: bool = False) -> None:
        """So much more of what a work was expected to take is done; the first word of a work says that it begins."""
        if key not in self.pieces:
            return
        progress = self._progress.setdefault(key, _Progress(now_s, now_s))
        progress.done += seconds
        progress.heard_s, progress.over = now_s, over

    def left_s(self, now_s: float) -> float:
        """Seconds until the last work ends."""
        paces = self._paces()
        left = {key: self._left(piece, paces, now_s) for key, piece in self.pieces.items() if not self._ended(key)}
        if len(left) > _MOST_PIECES:
            return sum(left.values()) / self.jobs
        spans = self._spans(left)
        total = 0.0
        for start, end in pairwise(sorted({0.0, *(moment for span in spans for moment in span)})):
            active = sum(begun <= start and ended >= end for begun, ended in spans)
            faster = self.alone + (1 - self.alone) * (active - 1) / max(1, self.jobs - 1)
            total += (end - start) * (faster if active else 1.0)
        return total

    def _ended(self, key: str) -> bool:
        return key in self._progress and self._progress[key].over

    def _left(self, piece: Piece, paces: Mapping[str, float], now_s: float) -> float:
        """Seconds a work will take from now on."""
        progress = self._progress.get(piece.key)
        if progress is None:
            return piece.seconds * paces[piece.kind]
        pace = _blend(progress.took_s, progress.done, paces[piece.kind])
        return max(0.0, (piece.seconds - progress.done) * pace - (now_s - progress.heard_s))

    def _paces(self) -> dict[str, float]:
        """By kind, real seconds for each that was expected."""
        paces: dict[str, float] = {}
        guess = 1.0
        for kind in get_args(Kind):
            of_kind = [one for key, one in self._progress.items() if self.pieces[key].kind == kind]
            # A work that ended has done all it was expected to, however little of it that was.
            took, done = sum(one.took_s for one in of_kind), sum(one.done for one in of_kind)
            paces[kind] = guess = _blend(took, done, guess)
        return paces

    def _spans(self, left: Mapping[str, float]) -> list[tuple[float, float]]:
        """Beginnings and ends from now on, in as many processes as there are."""
        running = [key for key in left if key in self._progress]
        ends = {key: left[key] for key in running}
        spans = [(0.0, end) for end in ends.values()]
        free = sorted([*ends.values(), *[0.0] * (self.jobs - len(ends))])[: self.jobs] or [0.0]
        waiting = [self.pieces[key] for key in left if key not in ends]
        while waiting:
            ready = [piece for piece in waiting if piece.after not in left or piece.after in ends] or waiting
            begins = {piece.key: ends.get(piece.after or "", 0.0) for piece in ready}
            piece = min(ready, key=lambda one: begins[one.key])  # of several the one that came first
            waiting.remove(piece)
            begun = max(begins[piece.key], free.pop(0))
            ends[piece.key] = begun + left[piece.key]
            spans.append((begun, ends[piece.key]))
            free = sorted([*free, ends[piece.key]])
        return spans


def _blend(took: float, done: float, guess: float) -> float:
    return (took + _TRUST_S * guess) / (done + _TRUST_S)
