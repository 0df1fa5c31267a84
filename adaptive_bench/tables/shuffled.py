"""What a method's decisions are worth: its score beside that of the same models with the decisions of other tokens.

Both are read off at the same saving, each from its own measured points, and compared over the same seeds and documents:
where the control of a seed is missing, or does not reach the level, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from adaptive_bench.metric import metric_of
from adaptive_bench.store.evaluations import Axis, MatchPhase, Sample
from adaptive_bench.store.measured import Documents, Measurement
from adaptive_bench.store.timings import TimeCurve
from adaptive_bench.tables.at_levels import Measured
from adaptive_bench.tables.comparison import paired_difference
from adaptive_bench.tables.crossed import Floats
from adaptive_bench.tables.document_scores import answers_by_seed, mixed_scores
from adaptive_bench.tables.intervals import bounds_of
from adaptive_bench.tables.matching import Interpolation
from adaptive_bench.tables.rows import Row

# Between what the method saves (share of net FLOPs) and what its control does at the same dial value: more than this is
# marked and said aloud.
TOLERANCE = 0.02


@dataclass(frozen=True)
class SeedPoints:
    """The measured points of one seed.

    Attributes:
        asked: Shares of saved tokens they were asked for.
        evaluations, samples: Of each point.
    """

    asked: Sequence[float]
    evaluations: Sequence[Measurement]
    samples: Sequence[Sequence[Sample] | Documents]


BySeed = Mapping[int, SeedPoints]


def with_control(
    rows: Iterable[Row], own: BySeed, control: BySeed, curves: Mapping[str, TimeCurve] | None = None
) -> list[Row]:
    """Rows of one method on one task with what its decisions are worth; a row stays as it is where a seed behind its
    score has no control at its level.

    Args:
        own, control: What the rows are made of, and the same of the control of shuffled decisions.
        curves: As for `table_rows`.
    """
    rows = list(rows)
    if any(one.evaluations and not (seed in control and control[seed].evaluations) for seed, one in own.items()):
        return rows
    pair = _Pair(own, control, tuple(sorted({row.level for row in rows})), curves or {})
    return [row if row.score is None else row.but(**pair.worth(row)) for row in rows]


def savings_apart(own: SeedPoints, control: SeedPoints) -> dict[float, float]:
    """By asked saving that both were measured at, the net saving of the control less that of the method."""
    others = dict(zip(control.asked, control.evaluations, strict=True))
    return {
        asked: others[asked].savings["net"] - mine.savings["net"]
        for asked, mine in zip(own.asked, own.evaluations, strict=True)
        if asked in others
    }


class _Pair:
    """A method and its control, which has points of every seed that the method has points of."""

    def __init__(self, own: BySeed, control: BySeed, levels: Sequence[float], curves: Mapping[str, TimeCurve]) -> None:
        seeds = [seed for seed, one in own.items() if one.evaluations]
        self.sides = [{seed: side[seed] for seed in seeds} for side in (own, control)]
        self.measured = [[Measured(one.evaluations) for one in side.values()] for side in self.sides]
        self.apart = [savings_apart(own[seed], control[seed]) for seed in seeds]
        self.places = {level: place for place, level in enumerate(levels)}
        self.levels, self.curves = levels, curves
        # Rows of one metric differ in axis and level; what the documents scored is the same for all of them.
        self.mixes, self.scores, self.answers = cache(self._mixes), cache(self._scores), cache(self._answers)

    def worth(self, row: Row) -> dict[str, Any]:
        """Columns of a row; none where the control did not reach its level with a seed that the method did with."""
        place = self.places[row.level]
        own, control = self.scores(row.metric, row.axis, row.phase, row.timing)
        reached = [seed for seed, levels in enumerate(own) if levels[place] is not None]
        if not reached or any(control[seed][place] is None for seed in reached):
            return {}
        first, second = (np.array([side[seed][place] for seed in reached]) for side in (own, control))
        known = metric_of(row.metric)
        # Where lower is better the method is better by what the control has more.
        better, worse = (second, first) if known.better == "lower" else (first, second)
        found = paired_difference(better, worse, bounds_of(known, (first, second)))
        mixes = self.mixes(row.axis, row.phase, row.timing)[0]
        return {
            "shuffled_score": float(second.mean()),
            "decisions_worth": found.difference,
            "decisions_low": found.low,
            "decisions_high": found.high,
            "shuffled_apart": self._furthest([(seed, mixes[seed][place]) for seed in reached]),
        }

    def _furthest(self, used: Iterable[tuple[int, Interpolation]]) -> float | None:
        """How far savings of both are apart at the dial values that the method's own score was read off; `None` where
        the control was not measured at one of them.
        """
        own = list(self.sides[0].values())
        found = [
            self.apart[seed].get(own[seed].asked[point]) for seed, mix in used for point in (*mix.below, *mix.above)
        ]
        known = [apart for apart in found if apart is not None]
        return max(known, key=abs) if len(known) == len(found) else None

    def _mixes(self, axis: Axis, phase: MatchPhase, timing: str | None) -> list[list[list[Interpolation]]]:
        """Of either side and each seed, where each level is read off."""
        curve = None if timing is None else self.curves[timing]
        return [[seed.mixes(axis, phase, self.levels, curve) for seed in side] for side in self.measured]

    def _scores(
        self, metric: str, axis: Axis, phase: MatchPhase, timing: str | None
    ) -> list[list[list[Floats | None]]]:
        """Of either side and each seed the scores [D] at each level, one for all where documents tell none."""
        tables = self.answers(metric)
        alike = all(tables) and len({table.shape[1] for side in tables for table in side.values()}) == 1
        found = []
        for side, table, measured, mixes in zip(
            self.sides, tables, self.measured, self.mixes(axis, phase, timing), strict=True
        ):
            answers = [
                table[seed] if alike else one.scores(metric)[:, None] for seed, one in zip(side, measured, strict=True)
            ]
            found.append([mixed_scores(mix, one) for mix, one in zip(mixes, answers, strict=True)])
        return found

    def _answers(self, metric: str) -> list[dict[int, Floats]]:
        """Of either side what `answers_by_seed` gives."""
        return [
            answers_by_seed(
                metric,
                {seed: one.evaluations for seed, one in side.items()},
                {seed: one.samples for seed, one in side.items()},
            )
            for side in self.sides
        ]
