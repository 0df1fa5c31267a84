"""Computes what a study maximises: one number from a method's measured points on validation documents."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError
from adaptive_bench.store.measured import MeasuredPoint
from adaptive_bench.tables import matching
from adaptive_bench.task import metric_of

REACHED = 0.02  # a level counts as reached if the measured saving is at most this much smaller


@dataclass(frozen=True)
class Objective:
    """One of two numbers, which are both better when larger: the score at the saving `at`, or without one (`area`) the
    mean score over the levels of the run.

    Scores of metrics for which lower is better get a minus sign. A saving that is not reached counts as score 0, or as
    minus infinity for such metrics.
    """

    at: float | None = None

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Read `area` or `score@0.15`; any other text is a `UsageError`."""
        kind, _, number = text.strip().partition("@")
        if text.strip() == "area":
            return cls()
        with suppress(ValueError):  # `score` or `score@` without a number too
            if kind == "score" and 0 <= float(number) < 1:
                return cls(float(number))
        raise UsageError(f"The objective is area or score@SAVING (score@0.15: the score at 15 % saved), got {text!r}.")

    def __str__(self) -> str:
        return "area" if self.at is None else f"score@{self.at:g}"

    def config(self, config: RunConfig) -> RunConfig:
        """The run's config with the levels at which trials are compared."""
        return config if self.at is None else config.model_copy(update={"levels": (self.at,)})

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
