"""What a study maximises: one number from a method's measured points on validation documents."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from adaptive_bench.errors import UsageError
from adaptive_bench.metric import metric_of
from adaptive_bench.store.evaluations import Point
from adaptive_bench.tables.matching import match

_STEP = 0.001  # how finely the largest saving is looked for, a share of the dense model's compute


@dataclass(frozen=True)
class Objective:
    """One of four numbers, all better when larger: scores of which lower ones are better have a minus sign. A saving
    that is not reached counts as score 0, of those as minus infinity.

    Attributes:
        kind: `area`: mean score over the range from the lowest to the highest level of the run. `score`: the score at
            the saving `at`, and `target`: at the one that a method is trained towards. `largest`: the largest saving
            that keeps the share `at` of the dense model's score.
    """

    kind: Literal["area", "score", "target", "largest"]
    at: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Read `area`, `score@0.15`, `score@target` or `largest@0.9`.

        Raises:
            UsageError: The text has another form.
        """
        kind, at_sign, number = text.strip().partition("@")
        if (kind, number) == ("score", "target"):
            return cls("target")
        try:
            if kind == "area" and not at_sign:
                return cls("area")
            if kind == "score" and 0 <= float(number) < 1:
                return cls("score", float(number))
            if kind == "largest" and 0 < float(number) <= 1:
                return cls("largest", float(number))
        except ValueError:
            pass
        raise UsageError(
            f"The objective is area, score@SAVING (score@0.15: the score at 15 % saved), score@target or "
            f"largest@SHARE (largest@0.9: the largest saving that keeps 90 % of the dense score), got {text!r}."
        )

    def __str__(self) -> str:
        return {"area": "area", "target": "score@target"}.get(self.kind) or f"{self.kind}@{self.at:g}"

    @property
    def needs_dense(self) -> bool:
        """Whether it compares with the dense model, trained alike."""
        return self.kind == "largest"

    def levels(self, levels: Sequence[float]) -> tuple[float, ...]:
        """The savings a sweep has to reach for it, given those of the run."""
        return tuple(sorted({*levels, self.at})) if self.kind == "score" else tuple(levels)

    def check(self, metrics: Iterable[str]) -> None:
        """Refuse metrics of tasks that it cannot take the mean of.

        Raises:
            UsageError: It is not known of one which scores are better, or they differ in it.
        """
        better = {metric: metric_of(metric).better for metric in metrics}
        if "unknown" in better.values() or (len(set(better.values())) > 1 and not self.needs_dense):
            told = ", ".join(f"{metric}: {which}" for metric, which in better.items())
            raise UsageError(
                f"The objective is a mean over tasks, whose first metrics have to be better in one direction, got "
                f"{told}. Leave out the tasks of one of them."
            )

    def value(
        self, points: Sequence[Point], levels: Sequence[float], name: str, metric: str, dense: float | None = None
    ) -> float:
        """The number for one sweep.

        Args:
            points: What was measured.
            levels: Levels of the run.
            name: The saving that is matched on, see `saving_name`.
            metric: Headline metric of the task.
            dense: Score of the dense model, where it is needed.
        """
        sign, worst = (-1.0, -math.inf) if metric_of(metric).better == "lower" else (1.0, 0.0)

        def scores_at(savings: Sequence[float]) -> list[float]:
            return [worst if one.score is None else sign * one.score for one in match(points, savings, name)]

        if self.kind == "score":
            return scores_at([self.at])[0]
        if self.kind == "area":
            scores = scores_at(levels)
            if len(levels) == 1:
                return scores[0]
            pieces = zip(pairwise(levels), pairwise(scores), strict=True)
            area = sum((high - low) * (first + last) / 2 for (low, high), (first, last) in pieces)
            return area / (levels[-1] - levels[0])
        assert dense is not None
        top = max((point.at(name) for point in points if point.on(name)), default=0.0)
        savings = [number * _STEP for number in range(int(max(top, 0.0) / _STEP) + 1)]
        kept = (
            at_level.level
            for at_level in match(points, savings, name)
            if at_level.score is not None and (metric_of(metric).retention(at_level.score, dense) or 0.0) >= self.at
        )
        return max(kept, default=0.0)
