"""What a saving is a share of: the axes and phases on which measured points know theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Axis = Literal["tokens", "core", "net", "layers", "claimed", "projected", "bytes", "time"]
COUNTED: tuple[Axis, ...] = ("tokens", "core", "net", "layers")  # what the ledger counts, in every phase
UNTIMED: tuple[Axis, ...] = (*COUNTED, "claimed", "projected", "bytes")  # what an evaluation itself knows
MatchPhase = Literal["all", "prefill", "decode"]
MATCH_PHASES: tuple[MatchPhase, ...] = ("all", "prefill", "decode")


def saving_name(axis: Axis, phase: MatchPhase = "all") -> str:
    """What a saving is called among those of a point: `net`, and of one phase alone `decode_net`."""
    return axis if phase == "all" else f"{phase}_{axis}"


@dataclass(frozen=True)
class Point:
    """One measured dial value: a score and the savings that came with it.

    Attributes:
        saved: Savings by name (see `saving_name`); `None`, or absent, where one is not known.
        seconds: Spent inside model calls.
    """

    dial: float
    score: float
    saved: Mapping[str, float | None]
    seconds: float = 0.0

    def on(self, name: str) -> bool:
        """Whether this saving is known."""
        return self.saved.get(name) is not None

    def at(self, name: str) -> float:
        """A saving that is known."""
        value = self.saved[name]
        assert value is not None
        return value
