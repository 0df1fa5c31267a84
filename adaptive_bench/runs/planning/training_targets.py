"""Targets of the trainings of a run: the saving each method is trained towards, and the rates of added parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from adaptive_bench.config import RunConfig
from adaptive_bench.method import DEFAULT_TARGET, method_class, training_spec
from adaptive_bench.recipe import FlopAxis
from adaptive_bench.spec import MethodSpec
from adaptive_bench.task import Task


@dataclass(frozen=True)
class TrainingTargets:
    """The same for every method of a run.

    Attributes:
        axis: What targets are a share of: the axis that is matched on; net FLOPs where that is time, saved tokens where
            it is what a dial claims.
        savings: The targets.
        pricing: By seed, the digest of the text on which targets are turned into schedules.
        rates: Peak rate of added parameters by method spec or name.
    """

    axis: FlopAxis
    savings: tuple[float, ...]
    pricing: Mapping[int, str]
    rates: Mapping[str, float]

    @classmethod
    def of(cls, config: RunConfig, tasks: Iterable[Task], pricing: Mapping[int, str]) -> TrainingTargets:
        """The targets of a run.

        Raises:
            UsageError: A rate is given for a method that does not exist.
        """
        for text in config.train.method_learning_rates:
            method_class(MethodSpec.parse(text)).parse_config(MethodSpec.parse(text))
        levels = [config.levels] if config.levels else [task.levels for task in tasks]
        priced: dict[str, FlopAxis] = {"time": "net", "claimed": "tokens"}
        axis = priced.get(config.match_on) or cast(FlopAxis, config.match_on)
        return cls(axis, config.train.target or (default_target(levels),), pricing, config.train.method_learning_rates)

    def rate(self, spec: MethodSpec) -> float | None:
        """Rate of what a spec adds: its own, else its method's, else `None` for the rate of the run."""
        rates = {str(training_spec(MethodSpec.parse(text))): rate for text, rate in self.rates.items() if "[" in text}
        return rates.get(str(spec), self.rates.get(spec.name))

    def describe(self, saving: float, seed: int) -> dict[str, Any]:
        """A target as part of a key."""
        return {"axis": self.axis, "saving": saving, "text": self.pricing[seed]}


def default_target(levels: Iterable[Sequence[float]]) -> float:
    """The largest level but one, so that the last level shows what lies beyond the training; of several tasks the
    smallest.
    """
    saving = [[level for level in sorted(one) if level > 0] for one in levels]
    return min((one[-2] if len(one) > 1 else one[-1] for one in saving if one), default=DEFAULT_TARGET)
