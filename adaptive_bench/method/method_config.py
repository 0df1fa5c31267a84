"""Describes the parameters of a method, the values that a tuning may try for them, and how a method starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, model_validator

from adaptive_bench.errors import UsageError

Scale = Literal["linear", "log", "int", "choice"]
_FORM = "linear:LOW:HIGH, log:LOW:HIGH, int:LOW:HIGH or choice:A|B|C"


@dataclass(frozen=True)
class SearchRange:
    """The values a tuning may try for one parameter.

    Attributes:
        scale: `linear` and `log` draw numbers between `low` and `high`, `int` whole numbers, `choice` one of `choices`.
        low, high: Ends of the range, both included; unused for a choice.
        choices: The values as text.
        source: Where the range comes from: a section of a paper, released code, or why it is a guess.
    """

    scale: Scale
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()
    source: str = ""

    @classmethod
    def parse(cls, text: str, source: str = "") -> SearchRange:
        """Read `log:1e-3:1`, `linear:0:1`, `int:1:4` or `choice:l1|l2`."""
        scale, _, rest = text.partition(":")
        if scale == "choice":
            choices = tuple(dict.fromkeys(part.strip() for part in rest.split("|") if part.strip()))
            if len(choices) < 2:
                raise UsageError(f"A choice needs two values or more, got {text!r}. Write choice:A|B.")
            return cls("choice", choices=choices, source=source)
        try:
            low, high = map(float, rest.split(":"))
        except ValueError:
            low = high = math.nan
        if scale not in ("linear", "log", "int") or not -math.inf < low < high < math.inf:
            raise UsageError(f"A search range has the form {_FORM} with LOW below HIGH, got {text!r}.")
        if scale == "log" and low <= 0:
            raise UsageError(f"A logarithmic range begins above 0, got {text!r}. Use linear:{low:g}:{high:g}.")
        if scale == "int" and not (low.is_integer() and high.is_integer()):
            raise UsageError(f"A range of whole numbers ends at whole numbers, got {text!r}.")
        return cls(cast(Scale, scale), low, high, source=source)

    @property
    def ends(self) -> tuple[str, ...]:
        """The two ends, or all choices, as text. A config must accept each of them."""
        return self.choices if self.scale == "choice" else (f"{self.low:g}", f"{self.high:g}")

    def __str__(self) -> str:
        inner = "|".join(self.choices) if self.scale == "choice" else f"{self.low:g}:{self.high:g}"
        return f"{self.scale}:{inner}"


class MethodConfig(BaseModel):
    """Parameters of a method. Each field is a spec parameter: `name[field=value]`. Unknown parameters are refused.

    Attributes:
        companions: Settings that the small models of the conformance suite can take only together with another
            setting: `{"a=x": "b=y"}`.
        unsound: Settings `a=x` that follow a paper to the letter although they break a rule of the conformance suite.
            `adaptive-bench check` leaves them out unless a spec names them.
        search_space: The range in which `adaptive-bench tune` searches each tuned parameter, by name.
        target_parameter: The parameter that says where training ends. If its value is `None`, training ends at the
            run's target saving.
        falling: Training schedules whose value falls, as pairs of parameters: where it starts, and where it ends.
    """

    companions: ClassVar[Mapping[str, str]] = {}
    search_space: ClassVar[Mapping[str, SearchRange]] = {}
    unsound: ClassVar[frozenset[str]] = frozenset()
    falling: ClassVar[Mapping[str, str]] = {}
    target_parameter: ClassVar[str | None] = None
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    @model_validator(mode="after")
    def _schedules_fall(self) -> Self:
        for first, last in self.falling.items():
            start, end = getattr(self, first), getattr(self, last)
            if end is not None and start < end:
                raise ValueError(f"{last} is at most {first}, from where training falls to it, got {end} and {start}")
        return self

    def on_model(self, layers: int) -> dict[str, Any]:
        """The effective parameters on a model with `layers` layers, as plain values. Configs with equal results are the
        same method on such a model.

        A default that stands for another value is replaced by that value; a parameter that nothing reads is left out.
        """
        return self.model_dump(mode="json")


@dataclass(frozen=True)
class InitialChange:
    """How far an untrained model is from the backbone: at the dial that skips nothing, and at the first training step.

    Both numbers are upper bounds that hold on every backbone the conformance suite tries.

    Attributes:
        reason: Why the method starts so, in one sentence, with its source.
        bound: Standard deviation of the change of a logit at the dial that skips nothing, relative to the standard
            deviation of the logits; 0 if the logits are the backbone's.
        skipped: Share of the skippable token-branches that the first training step leaves out; 0 if it leaves out
            almost none.
    """

    reason: str
    bound: float
    skipped: float = 0.0
