"""What the seeds of a method have at every level of one axis: where each is read off, and the means of all savings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from adaptive_bench.store.evaluations import COUNTED, MATCH_PHASES, Axis, MatchPhase, saving_name
from adaptive_bench.store.measured import KNOWN, NAMES, Measurement
from adaptive_bench.store.timings import TimeCurve
from adaptive_bench.tables.crossed import Floats
from adaptive_bench.tables.document_scores import mixed_scores
from adaptive_bench.tables.matching import Interpolation, Status, mixes
from adaptive_bench.tables.points import saved_time


class Measured:
    """The measured points of one seed, P of them.

    Args:
        evaluations: The points, at least one.
    """

    def __init__(self, evaluations: Sequence[Measurement]) -> None:
        self.evaluations = evaluations
        columns = [
            (
                one.dial,
                one.time_s,
                *(one.saved(*known) for known in KNOWN),
                *map(one.flops_per_token, MATCH_PHASES),
                one.bytes_per_token,
            )
            for one in evaluations
        ]
        self.values: Floats = np.array(columns, dtype=float)  # what is not known becomes NaN
        self._dials = [one.dial for one in evaluations]

    def mixes(
        self, axis: Axis, phase: MatchPhase, levels: Sequence[float], curve: TimeCurve | None
    ) -> list[Interpolation]:
        """Where each level is read off; `curve` gives the saved time on the axis `time`."""
        savings = [saved_time(one, curve) if axis == "time" else one.saved(axis, phase) for one in self.evaluations]
        return mixes(self._dials, savings, levels, saving_name(axis, phase))

    def scores(self, metric: str) -> Floats:
        """[P]."""
        return np.array([one.scores[metric] for one in self.evaluations], dtype=float)


@dataclass(frozen=True)
class LevelMatches:
    """All seeds on one axis in one phase, at L levels.

    Attributes:
        mixes: [S][L], of the seeds that have points.
        curve: On saved time, where it is read off.
    """

    axis: Axis
    phase: MatchPhase
    seeds: Sequence[Measured]
    mixes: Sequence[Sequence[Interpolation]]
    curve: TimeCurve | None = None

    def means(self, position: int, planned: int) -> dict[str, Any]:
        """Values of a row at one level but for its score: means over the seeds that reached it, nothing if none did.

        Args:
            position: Of the level.
            planned: Number of seeds, those without points included.
        """
        reached = [
            (one[position], seed) for one, seed in zip(self.mixes, self.seeds, strict=True) if one[position].below
        ]
        if not reached:
            return {}
        values = np.array([mix.of(seed.values) for mix, seed in reached])
        if self.axis != "time":  # the level itself, whatever rounding makes of it
            own = 2 + KNOWN.index((self.axis, self.phase))
            values[:, own] = [
                mix.level if mix.above else value for (mix, _), value in zip(reached, values[:, own], strict=True)
            ]
        dial, seconds, *savings = (fmean(column) for column in values.T.tolist())
        savings, flops, read = savings[: len(NAMES)], savings[len(NAMES) + MATCH_PHASES.index(self.phase)], savings[-1]
        saved: Mapping[str, float | None] = {
            name: None if mean != mean else mean for name, mean in zip(NAMES, savings, strict=True)
        }
        claimed, executed = saved["claimed"], saved[saving_name("tokens", self.phase)]
        status: Status = "ok"
        if len(reached) < planned:
            status = "partial"
        elif any(mix.status == "inert" for mix, _ in reached):
            status = "inert"
        return {
            **{
                f"saved_{name}": saved[name]
                for phase in MATCH_PHASES
                for axis in COUNTED
                if (name := saving_name(axis, phase))
            },
            "dial": dial,
            "seconds": seconds,
            "gap": max(mix.gap for mix, _ in reached),
            "distance": max(mix.distance for mix, _ in reached),
            "claimed": claimed,
            "claimed_minus_executed": None if claimed is None or executed is None else claimed - executed,
            "projected_net": saved[saving_name("projected", self.phase)],
            "flops_per_token": None if flops != flops else flops,
            "bytes_per_token": None if read != read else read,
            "ms_per_token": self._ms_per_token(reached),
            "status": status,
        }

    def _ms_per_token(self, reached: Sequence[tuple[Interpolation, Measured]]) -> float | None:
        if self.curve is None or self.curve.plain_ms is None:
            return None
        saved = [
            np.array([saved_time(one, self.curve) for one in seed.evaluations], dtype=float) for _, seed in reached
        ]
        return self.curve.plain_ms * (
            1 - fmean(float(mix.of(own)) for (mix, _), own in zip(reached, saved, strict=True))
        )

    def scores(
        self, scores: Sequence[Floats], answers: Sequence[Floats], levels: int
    ) -> list[tuple[list[float], Floats]]:
        """At each level the scores of the seeds that reached it, and a table of them by document [S, D].

        Args:
            scores: Of each seed's points, [P] each.
            answers: Of each seed's points by document, [P, D] each; without them a seed's score is its one column.
            levels: How many there are.
        """
        by_document = [mixed_scores(found, one) for found, one in zip(self.mixes, answers, strict=False)]
        tables = []
        for position in range(levels):
            at_level = [seed[position] for seed in self.mixes]
            reached = [float(mix.of(values)) for mix, values in zip(at_level, scores, strict=True) if mix.below]
            found = [one for seed in by_document if (one := seed[position]) is not None]
            tables.append((reached, np.array(found) if found else np.array(reached)[:, None]))
        return tables
