"""Which values are no trial: those that the model cannot have, and those that come to a method tried already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError
from adaptive_bench.method import config_of, training_spec
from adaptive_bench.runs.checks.model import examine, model_facts
from adaptive_bench.runs.planning.training_targets import TrainingTargets
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.keys import canonical
from adaptive_bench.tuning.space import Space, Values

Why = Callable[[Values, Mapping[int, Values]], str | None]


@dataclass(frozen=True)
class Refusals:
    """Says which values a method is not tried with on the model of a run.

    Args:
        config: The run whose model and recipe are used.
    """

    space: Space
    config: RunConfig

    def __call__(self, values: Values, tried: Mapping[int, Values]) -> str | None:
        """Why the values are refused; `None` where they are a trial of their own.

        Args:
            tried: Values by the number of their trial; those of the defaults are empty.
        """
        try:
            mine = self._comes_to(values)
        except UsageError as error:  # values that exclude each other
            return str(error)
        for number, other in tried.items():
            if self._comes_to(other) == mine:
                return f"comes to the same method as trial {number}" + ("" if other else ", its defaults")
        return self.fault(values)

    def fault(self, values: Values) -> str | None:
        """Why the model cannot have the values; `None` if it can."""
        try:
            examine(self.space.spec_with(values), model_facts(self.config.model))
        except UsageError as error:
            return str(error)
        return None

    def _comes_to(self, values: Values) -> str:
        """What tells the trial of some values from others: the method on this model, and its recipe."""
        config = self.space.config_with(values, self.config)
        spec = MethodSpec.parse(config.methods[0])
        rate = TrainingTargets("net", (), {}, config.train.method_learning_rates).rate(training_spec(spec))
        layers = int(model_facts(config.model).empty.config.num_hidden_layers)
        parameters = config_of(spec).on_model(layers)
        recipe = config.train.model_dump(mode="json", exclude={"method_learning_rates"})
        return canonical([parameters, rate, recipe])


def repeated(values: Values, tried: Mapping[int, Values]) -> str | None:
    """Refuse nothing but what was tried: a `Why` that knows no method."""
    same = next((number for number, other in tried.items() if other == values), None)
    return None if same is None else f"tried as trial {same}"


def accepted(space: Space, why: Why, tried: Mapping[int, Values]) -> Iterator[dict[str, Any]]:
    """The points of a space that are trials of their own beside those before them."""
    known = dict(tried)
    for point in space.points():
        values = space.text(point)
        if why(values, known) is None:
            known[-len(known) - 1] = values
            yield point


def spread(space: Space, why: Why, number: int) -> list[dict[str, Any]]:
    """Points that cover a space evenly, none of them the method as it is; fewer where there are no more."""
    return list(islice(accepted(space, why, {0: {}}), number))


def fitted(space: Space, refusals: Refusals) -> Space:
    """The space with counts up to the largest that the model can have; of a plugin's method as it is, for trying it on
    takes a process each time.
    """
    if registry.is_foreign("methods", space.spec.name):
        return space
    ranges = dict(space.ranges)
    for name, search in space.ranges.items():
        if search.scale == "int":
            downwards = range(int(search.high), int(search.low) - 1, -1)
            largest = next((value for value in downwards if refusals.fault({name: str(value)}) is None), None)
            ranges[name] = search if largest is None else replace(search, high=float(largest))
    return Space(space.spec, ranges)
