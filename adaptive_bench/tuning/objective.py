"""Computes what a study maximises: one number from a method's measured points on validation documents."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError
from adaptive_bench.store.measured import MeasuredPoint
from adaptive_bench.tables import matching
from adaptive_bench.task import metric_of

REACHED = 0.02  # a level counts as reached if the measured saving is at most this much smaller


@dataclass(frozen=True)
class Objective:
    """One of three numbers, which are all better when larger: the mean score over the levels of the run (`area`), the
    `score` at the saving `at`, or at the saving that a method is trained towards (`target`).

    Scores of metrics for which lower is better get a minus sign. A saving that is not reached counts as score 0, or as
    minus infinity for such metrics.
    """

    kind: Literal["area", "score", "target"]
    at: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Read `area`, `score@0.15` or `score@target`; any other text is a `UsageError`."""
        kind, at_sign, number = text.strip().partition("@")
        if (kind, number) == ("score", "target"):
            return cls("target")
        try:
            if kind == "area" and not at_sign:
                return cls("area")
            if kind == "score" and 0 <= float(number) < 1:
                return cls("score", float(number))
        except ValueError:  # `score` or `score@` without a number too
            pass
        raise UsageError(
            f"The objective is area, score@SAVING (score@0.15: the score at 15 % saved) or score@target, got {text!r}."
        )

    def __str__(self) -> str:
        return {"area": "area", "target": "score@target"}.get(self.kind) or f"{self.kind}@{self.at:g}"

    def config(self, config: RunConfig) -> RunConfig:
        """The run's config with the levels at which trials are compared."""
        if self.kind == "score":
            return config.model_copy(update={"levels": (self.at,)})
        if self.kind == "target" and config.train.target is not None:
            return config.model_copy(update={"levels": (config.train.target,)})
        return config

    def check(self, metrics: Iterable[str]) -> None:
        """Refuse (`UsageError`) metrics of unknown direction or of different ones, whose mean makes no sense."""
        better = {metric: metric_of(metric).better for metric in metrics}
        if "unknown" in better.values() or len(set(better.values())) > 1:
            told = ", ".join(f"{metric}: {which}" for metric, which in better.items())
            raise UsageError(
                f"The objective is a mean over tasks, so their first metrics must be better in one direction, got "
                f"{told}. Leave out the tasks of one direction."
            )

    def value(self, points: Sequence[MeasuredPoint], levels: Sequence[float], name: str, metric: str) -> float:
        """The objective of one sweep.

        Args:
            name: Name of the saving that is matched on, see `saving_name`.
            metric: Headline metric of the task.
        """
        sign, worst = (-1.0, -math.inf) if metric_of(metric).better == "lower" else (1.0, 0.0)
        found = [nearest(points, level, name) for level in levels]
        return fmean(worst if place is None else sign * points[place].scores[metric] for place in found)


def nearest(points: Sequence[MeasuredPoint], level: float, name: str) -> int | None:
    """Place of the measured point nearest to a level; `None` if that point saves clearly less than the level."""
    place = matching.nearest([point.savings.get(name) for point in points], level)
    # A level of 0 is always reached, even if gates cost more than nothing and the measured saving is negative.
    return None if place is None or level > max(0.0, points[place].savings[name] + REACHED) else place
