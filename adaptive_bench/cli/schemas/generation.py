"""What `adaptive-bench generate --json` prints."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from adaptive_bench.cli.schemas.compute import SavedShares


class Continuation(TypedDict):
    """A prompt, and the text after it."""

    prompt: str
    text: str


class SiteShare(TypedDict):
    """Share of the tokens that ran a branch of a layer; `null` where no token may skip it or there are none."""

    layer: int
    branch: Literal["attention", "mlp"]
    executed: float | None


class PhaseCounts(TypedDict):
    """Raw sums of a phase; L layers, and a last row of multiply-accumulates (MACs) for the head.

    Attributes:
        macs: [L + 1][buckets], in the order of `report.macs`.
        dense_macs: [L + 1], of the dense model on the same tokens.
        eligible, executed: [L][attention, mlp], token-branches that may be skipped, and that ran.
        calls: Of the model.
        work: [L][columns], counts behind the MACs.
        runs: Tokens by module, likewise.
    """

    macs: list[list[float]]
    dense_macs: list[float]
    eligible: list[list[float]]
    executed: list[list[float]]
    weight_bytes: float
    dense_weight_bytes: float
    calls: int
    tokens: int
    work: list[list[float]]
    runs: dict[str, float]


class Counts(TypedDict):
    """Raw sums of reading prompts, and of writing."""

    prefill: PhaseCounts
    decode: PhaseCounts


class ComputeReport(TypedDict):
    """What was saved.

    Attributes:
        saved: In both phases together.
        macs: Multiply-accumulates by what they were spent on.
    """

    saved: SavedShares
    prefill: SavedShares
    decode: SavedShares
    macs: dict[str, float]
    sites: list[SiteShare]
    counts: Counts


class Generation(TypedDict):
    """Texts, and what they cost.

    Attributes:
        method: Spec.
        dial: Its value.
        claimed_saving: Share of token-branches that the dial value is said to save; `null` where nobody says.
    """

    method: str
    dial: float
    claimed_saving: float | None
    texts: list[Continuation]
    report: ComputeReport
