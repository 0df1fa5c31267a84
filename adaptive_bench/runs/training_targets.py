"""Derives the levels of a run and the goals of its trainings: target savings, and rates of added parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from adaptive_bench import registry
from adaptive_bench.backbone import Backbone
from adaptive_bench.config import RunConfig
from adaptive_bench.method import DEFAULT_TARGET, method_class, training_spec, why_not_shuffled
from adaptive_bench.recipe import FlopAxis
from adaptive_bench.runs.backbone_source import empty_model, find_backbone
from adaptive_bench.spec import MethodSpec

_PERCENT = 15  # per cent of the layers that `levels: auto` comes nearest to
# Raise it when shuffled decisions give other outputs (`engine.shuffling`) or are measured at other points.
VERSION = 2
# What the key of a shuffled evaluation has in addition to the key of the method's own evaluation.
SHUFFLED: Mapping[str, Any] = {"variant": "shuffled", "shuffled": VERSION}


class Goal(NamedTuple):
    """What one training is for.

    Attributes:
        saving: The saving that it moves towards; `None` for a method that is trained towards none.
        levels: The levels at which it is judged.
    """

    saving: float | None
    levels: tuple[float, ...]


def auto_level(layers: int) -> float:
    """The share of a model's layers, a whole number of them, that is nearest to 15 %; the smaller one of a tie."""
    nearest = math.ceil(_PERCENT * layers / 100 - 0.5)  # rounds halves down, unlike `round`
    return max(1, nearest) / layers


def levels_of(config: RunConfig) -> tuple[float, ...]:
    """The levels of a run, in ascending order."""
    if config.levels is not None:
        return config.levels
    if config.match_on not in ("layers", "tokens"):
        return (_PERCENT / 100,)
    return (auto_level(Backbone(empty_model(find_backbone(config.model))).num_layers),)


def target_axis(config: RunConfig) -> FlopAxis:
    """The axis that targets of a run are a share of: the axis the run is matched on, but net FLOPs for bytes, and
    tokens for what a dial claims.
    """
    priced: dict[str, FlopAxis] = {"bytes": "net", "claimed": "tokens"}
    return priced.get(config.match_on) or cast(FlopAxis, config.match_on)


def rate_of(spec: MethodSpec, rates: Mapping[str, float]) -> float | None:
    """Learning rate of the parameters that a spec adds, or `None` for the rate of the run.

    The spec's own rate comes first, then that of its parameters in `bench` semantics, then that of its method's name.

    Args:
        rates: Rates by method spec or name.
    """
    given = {MethodSpec.parse(text): rate for text, rate in rates.items()}
    # A rate by name alone is none of these, because it holds for every spec of the method.
    of_specs = {training_spec(one): rate for one, rate in given.items() if str(one) != one.name}
    return of_specs.get(spec, of_specs.get(MethodSpec(spec.name, spec.params), rates.get(spec.name)))


def goals_of(config: RunConfig, levels: tuple[float, ...]) -> tuple[Goal, ...]:
    """The goals of every method that trains towards a saving, one training for each.

    There is one goal for each level above 0, judged at that level; levels of 0 are judged with the first goal. With a
    target, or without a level above 0, there is one goal for all levels.
    """
    target = config.train.target
    saving = [level for level in levels if level > 0]
    if target is not None or not saving:
        return (Goal(DEFAULT_TARGET if target is None else target, levels),)
    nothing = tuple(level for level in levels if level <= 0)
    return tuple(Goal(level, (level,) if number else (*nothing, level)) for number, level in enumerate(saving))


def has_control(spec: MethodSpec, config: RunConfig) -> bool:
    """Whether a run measures the shuffled-decisions control of a spec."""
    return config.shuffled and method_class(spec).adapts and why_not_shuffled(spec) is None


def without_control(config: RunConfig) -> list[str]:
    """One sentence for each method of a run whose shuffled-decisions control was asked for but is not possible.

    Methods that treat all tokens alike need no control.
    """
    specs = map(MethodSpec.parse, config.methods if config.shuffled else ())
    here = registry.names("methods")  # methods that are not registered here are passed over
    return [
        f"{spec} has no control of shuffled decisions: a token can have another token's decisions where each is "
        f"decided for itself, but {why}."
        for spec in specs
        if spec.name in here and method_class(spec).adapts and (why := why_not_shuffled(spec))
    ]
