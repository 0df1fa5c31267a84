"""Levels of a run, and what its trainings are for: the saving each moves towards, and the rates of added parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from adaptive_bench import registry
from adaptive_bench.backbone import Backbone
from adaptive_bench.config import RunConfig
from adaptive_bench.method import DEFAULT_TARGET, config_of, method_class, training_spec, why_not_shuffled
from adaptive_bench.recipe import FlopAxis
from adaptive_bench.runs.backbone_source import empty_model, find_backbone
from adaptive_bench.spec import MethodSpec

_PERCENT = 15  # what `levels: auto` is nearest to
# Raise it when the outputs of shuffled decisions move (`engine.shuffling`), or where they are measured.
VERSION = 2
# What the key of such an evaluation has beside those of the method's own.
SHUFFLED: Mapping[str, Any] = {"variant": "shuffled", "shuffled": VERSION}


class Goal(NamedTuple):
    """What one training is for.

    Attributes:
        saving: It moves towards; `None` for a method that is trained towards none.
        levels: It is judged at.
    """

    saving: float | None
    levels: tuple[float, ...]


def auto_level(layers: int) -> float:
    """The share of its layers nearest to 15 % that a whole number of them is; of two that are as near, the smaller."""
    return max(1, -((50 - _PERCENT * layers) // 100)) / layers


def levels_of(config: RunConfig, layers: int | None = None) -> tuple[float, ...]:
    """The levels of a run, rising.

    Args:
        layers: Of its model; by default the model is asked, if that matters.

    Raises:
        EnvironmentProblem: The model cannot be reached.
    """
    if config.levels is not None:
        return config.levels
    if config.match_on not in ("layers", "tokens"):
        return (_PERCENT / 100,)
    if layers is None:
        layers = Backbone(empty_model(find_backbone(config.model))).num_layers
    return (auto_level(layers),)


@dataclass(frozen=True)
class TrainingTargets:
    """The same for every method of a run, whatever its dial makes of it.

    Attributes:
        axis: What targets are a share of: the axis that is matched on; net FLOPs where that is time, saved tokens where
            it is what a dial claims.
        goals: Of a method that trains towards a saving, one training each.
        untrained: Of any other.
        pricing: By seed, the digest of the text on which targets are turned into schedules.
        rates: Peak rate of added parameters by method spec or name.
    """

    axis: FlopAxis
    goals: tuple[Goal, ...]
    untrained: Goal
    pricing: Mapping[int, str]
    rates: Mapping[str, float]

    @classmethod
    def of(cls, config: RunConfig, levels: tuple[float, ...], pricing: Mapping[int, str]) -> TrainingTargets:
        """The targets of a run with these levels.

        Raises:
            UsageError: A rate is given for a method that does not exist.
        """
        rates = config.train.method_learning_rates
        for text in rates:
            config_of(MethodSpec.parse(text))
        return cls(target_axis(config), _goals(config.train.target, levels), Goal(None, levels), pricing, rates)

    def describe(self, goal: Goal, seed: int) -> dict[str, Any]:
        """A goal as part of a key."""
        return {"axis": self.axis, "saving": goal.saving, "text": self.pricing[seed]}


def target_axis(config: RunConfig) -> FlopAxis:
    """What targets of a run are a share of."""
    priced: dict[str, FlopAxis] = {"time": "net", "bytes": "net", "claimed": "tokens"}
    return priced.get(config.match_on) or cast(FlopAxis, config.match_on)


def rate_of(spec: MethodSpec, rates: Mapping[str, float]) -> float | None:
    """Rate of what a spec adds: its own, else that of its parameters in `bench` semantics, else its method's, else
    `None` for the rate of the run.

    Args:
        rates: By method spec or name.
    """
    given = {MethodSpec.parse(text): rate for text, rate in rates.items()}
    of_specs = {training_spec(one): rate for one, rate in given.items() if str(one) != one.name}
    return of_specs.get(spec, of_specs.get(MethodSpec(spec.name, spec.params), rates.get(spec.name)))


def _goals(target: float | None, levels: tuple[float, ...]) -> tuple[Goal, ...]:
    """One for each level, each judged where it was trained; 0 goes with the first. One for all if there is a target."""
    saving = [level for level in levels if level > 0]
    if target is not None or not saving:
        return (Goal(DEFAULT_TARGET if target is None else target, levels),)
    nothing = tuple(level for level in levels if level <= 0)
    return tuple(Goal(level, (level,) if number else (*nothing, level)) for number, level in enumerate(saving))


def has_control(spec: MethodSpec, config: RunConfig) -> bool:
    """Whether a run measures the control of shuffled decisions of a spec."""
    return config.shuffled and method_class(spec).adapts and why_not_shuffled(spec) is None


def without_control(config: RunConfig) -> list[str]:
    """One sentence for each method of a run whose control was asked for and cannot be had. Those that treat all tokens
    alike need none.
    """
    specs = map(MethodSpec.parse, config.methods if config.shuffled else ())
    here = registry.names("methods")  # of a method that is not, nobody knows
    return [
        f"{spec} has no control of shuffled decisions: a token can have another token's decisions where each is "
        f"decided for itself, but {why}."
        for spec in specs
        if spec.name in here and method_class(spec).adapts and (why := why_not_shuffled(spec))
    ]
