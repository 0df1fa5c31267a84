"""Saved time as an axis: what share of the plain model's time a method saves where it saves some share of tokens.

A timing measures (saved tokens, saved time) over a method's dial in one setting: a device, threads, batch, prompt and
new tokens. An evaluated point has its own saved tokens; its saved time is read off that curve, interpolated linearly
between two measured neighbours and never extrapolated. The evaluation's own clock is not used: its batches and lengths
differ from point to point. Curves of different settings are never mixed: each has tables of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import fmean

_SAME = 1e-6


@dataclass(frozen=True)
class TimeCurve:
    """One method in one setting.

    Attributes:
        points: (saved tokens, saved time) rising in saved tokens, each of them once.
        plain_ms: Milliseconds that the plain model took for each new token of a row's answer, the time of its prompt
            included and the batch sharing it; `None` where the timing does not say.
    """

    points: tuple[tuple[float, float], ...]
    plain_ms: float | None = None

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]], plain_ms: float | None = None) -> TimeCurve:
        """Points in any order; those with the same saved tokens count as one, their mean."""
        grouped = groupby(sorted(pairs), key=lambda pair: round(pair[0] / _SAME))
        same = [list(group) for _, group in grouped]
        return cls(tuple((fmean(x for x, _ in group), fmean(y for _, y in group)) for group in same), plain_ms)

    def at(self, saved_tokens: float) -> float | None:
        """Saved time where so many tokens are saved; `None` outside what was timed."""
        for x, y in self.points:
            if abs(x - saved_tokens) <= _SAME:
                return y
        for (x, y), (next_x, next_y) in pairwise(self.points):
            if x < saved_tokens < next_x:
                share = (saved_tokens - x) / (next_x - x)
                return y * (1 - share) + next_y * share
        return None


# Curves by the text of the method spec, for each setting by its label.
TimeCurves = Mapping[str, Mapping[str, TimeCurve]]
