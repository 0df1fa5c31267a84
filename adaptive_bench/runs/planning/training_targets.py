"""Targets of the trainings of a run: the saving each method is trained towards, and the rates of added parameters.

A method whose dial is a number of layers has no training for 10 or 20 %, only for one layer, or two: the number next to
either target can be the same one, and the next number is then never trained. Where there are several targets, such a
method is therefore trained for every number of layers up to the first that saves the largest of them on any text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from adaptive_bench.backbone import Backbone
from adaptive_bench.config import RunConfig
from adaptive_bench.method import DEFAULT_TARGET, Method, config_of, training_spec
from adaptive_bench.recipe import FlopAxis
from adaptive_bench.spec import MethodSpec
from adaptive_bench.task import Task

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_SAME = 1e-9


class Goal(NamedTuple):
    """What one training is for: a saving, as a share on an axis."""

    axis: FlopAxis
    saving: float


@dataclass(frozen=True)
class TrainingTargets:
    """The same for every method of a run, whatever its dial makes of it.

    Attributes:
        axis: What targets are a share of: the axis that is matched on; net FLOPs where that is time, saved tokens where
            it is what a dial claims.
        savings: The targets.
        pricing: By seed, the digest of the text on which targets are turned into schedules.
        rates: Peak rate of added parameters by method spec or name.
        empty: Gives the model that is trained, values or not; asked where a target is a number of its layers.
    """

    axis: FlopAxis
    savings: tuple[float, ...]
    pricing: Mapping[int, str]
    rates: Mapping[str, float]
    empty: Callable[[], PreTrainedModel] | None = None

    @classmethod
    def of(
        cls,
        config: RunConfig,
        tasks: Iterable[Task],
        pricing: Mapping[int, str],
        empty: Callable[[], PreTrainedModel] | None = None,
    ) -> TrainingTargets:
        """The targets of a run.

        Raises:
            UsageError: A rate is given for a method that does not exist.
        """
        for text in config.train.method_learning_rates:
            config_of(MethodSpec.parse(text))
        levels = [config.levels] if config.levels else [task.levels for task in tasks]
        priced: dict[str, FlopAxis] = {"time": "net", "bytes": "net", "claimed": "tokens"}
        axis = priced.get(config.match_on) or cast(FlopAxis, config.match_on)
        savings = config.train.target or (default_target(levels),)
        return cls(axis, savings, pricing, config.train.method_learning_rates, empty)

    def goals(self, method: type[Method]) -> tuple[Goal, ...]:
        """What a method that takes a target is trained for, one training each: the targets, or numbers of layers."""
        if not method.skips_whole_layers or len(self.savings) == 1:
            return tuple(Goal(self.axis, saving) for saving in self.savings)
        assert self.empty is not None
        return tuple(Goal("tokens", share) for share in layer_shares(self.empty(), max(self.savings), self.axis))

    def rate(self, spec: MethodSpec) -> float | None:
        """Rate of what a spec adds: its own, else that of its parameters in `bench` semantics, else its method's, else
        `None` for the rate of the run.
        """
        given = {MethodSpec.parse(text): rate for text, rate in self.rates.items()}
        rates = {training_spec(one): rate for one, rate in given.items() if str(one) != one.name}
        return rates.get(spec, rates.get(MethodSpec(spec.name, spec.params), self.rates.get(spec.name)))

    def describe(self, goal: Goal, seed: int) -> dict[str, Any]:
        """A goal as part of a key."""
        return {"axis": goal.axis, "saving": goal.saving, "text": self.pricing[seed]}


def layer_shares(empty: PreTrainedModel, saving: float, axis: FlopAxis) -> tuple[float, ...]:
    """Shares of the layers of a model: of one layer, of two, and so on, to the first number of them that saves so much
    on whatever text.

    A layer saves least where every token runs through the head as well and attends to hardly any others: as much as its
    linear maps have of the FLOPs of all linear maps, the head's included.
    """
    backbone = Backbone(empty)
    costs, layers = backbone.costs, backbone.num_layers
    maps = float((costs.attn_q_o + costs.attn_kv + costs.mlp).sum())
    least = 1 / layers if axis == "tokens" else maps / layers / (maps + backbone.head_macs)
    most = min(layers, max(1, math.ceil(saving / least - _SAME)))
    return tuple(number / layers for number in range(1, most + 1))


def default_target(levels: Iterable[Sequence[float]]) -> float:
    """The largest level but one, so that the last level shows what lies beyond the training; of several tasks the
    smallest.
    """
    saving = [[level for level in sorted(one) if level > 0] for one in levels]
    return min((one[-2] if len(one) > 1 else one[-1] for one in saving if one), default=DEFAULT_TARGET)
