"""Where to look for a parameter's best value, as a method publishes it beside its config or a user writes it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, cast

from adaptive_bench.errors import UsageError

Scale = Literal["linear", "log", "int", "choice"]
_FORM = "linear:LOW:HIGH, log:LOW:HIGH, int:LOW:HIGH or choice:A|B|C"


@dataclass(frozen=True)
class SearchRange:
    """The values a tuning may try for one parameter.

    Attributes:
        scale: `linear` and `log` draw numbers between `low` and `high`, `int` whole ones, `choice` one of `choices`.
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
        """Read `log:1e-3:1`, `linear:0:1`, `int:1:4` or `choice:l1|l2`.

        Raises:
            UsageError: The text has another form, or the range is empty.
        """
        scale, _, rest = text.partition(":")
        if scale == "choice":
            choices = tuple(dict.fromkeys(part.strip() for part in rest.split("|") if part.strip()))
            if len(choices) < 2:
                raise UsageError(f"A choice needs two values or more, got {text!r}. Write choice:A|B.")
            return cls("choice", choices=choices, source=source)
        try:
            low, high = map(float, rest.split(":"))
        except ValueError:
            raise UsageError(f"A search range has the form {_FORM}, got {text!r}.") from None
        if scale not in ("linear", "log", "int") or not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise UsageError(f"A search range has the form {_FORM} with LOW below HIGH, got {text!r}.")
        if scale == "log" and low <= 0:
            raise UsageError(f"A logarithmic range begins above 0, got {text!r}. Use linear:{low:g}:{high:g}.")
        if scale == "int" and not (low.is_integer() and high.is_integer()):
            raise UsageError(f"A range of whole numbers ends at whole numbers, got {text!r}.")
        return cls(cast(Scale, scale), low, high, source=source)

    @property
    def ends(self) -> tuple[str, ...]:
        """The outermost values, or all choices, as text: what a config must accept."""
        return self.choices if self.scale == "choice" else (f"{self.low:g}", f"{self.high:g}")

    def __str__(self) -> str:
        inner = "|".join(self.choices) if self.scale == "choice" else f"{self.low:g}:{self.high:g}"
        return f"{self.scale}:{inner}"
