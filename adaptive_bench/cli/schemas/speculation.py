"""The record of `adaptive-bench speculate --json`."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from adaptive_bench.cli.schemas.compute import Environment, SavedShares
from adaptive_bench.model.timing.clock import Quantiles


class Settings(TypedDict):
    """What was asked for.

    Attributes:
        limit: Documents of each task, a seeded draw.
        savings: Shares of token-branches that drafting skips.
        drafts: Most tokens drafted in a round.
        stop_below: A draft ends after a token of a smaller probability.
        batches: Rows of a batch.
        new: Most new tokens of a text.
        rounds: Of timing.
        num_fewshot: `null` for each task's own number.
    """

    tasks: list[str]
    limit: int
    savings: list[float]
    drafts: int
    stop_below: float
    batches: list[int]
    new: int
    rounds: int
    num_fewshot: int | None


class IdealPasses(TypedDict):
    """Layer passes a token where each is drafted by its own first exit; `null` where there are no tokens."""

    layers: int
    tokens: int
    mean_first_exit: float | None
    best: float | None
    fixed: float | None


class TokenCost(TypedDict):
    """Of a token that is not the first of its text; `null` where there is none."""

    bytes_per_token: float | None
    flops_per_token: float | None


class Difference(TypedDict):
    """The first place at which a speculative text differs from the greedy one.

    Attributes:
        text, position: Of the prompt and of the new token, from 0.
        greedy, speculative: The two tokens; `null` where the text has ended.
        gap: Logit of the greedy one less that of the other; `null` where a text has ended.
        bound: What rounding explains; `null` likewise.
        near_tie: Whether rounding explains it.
    """

    text: int
    position: int
    greedy: int | None
    speculative: int | None
    gap: float | None
    bound: float | None
    near_tie: bool


class Decoding(TypedDict):
    """All texts, decoded in one way."""

    tokens: int
    decoded_tokens: int
    bytes_per_token: float | None
    flops_per_token: float | None
    parts: dict[str, TokenCost]
    tokens_per_s: Quantiles


class SpeculationPoint(Decoding):
    """One saving of the draft.

    Attributes:
        dial: `null` where layers are chosen for each draft.
        draft_saved: Shares saved while drafting.
        acceptance: Accepted over drafted tokens; `null` where nothing was drafted.
        verifications: Calls of the full model.
        tokens_per_verification: `null` where there were none.
        speedup: Time of greedy decoding over ours, within each round.
        equal_texts: Of all.
    """

    saving: float
    dial: float | None
    draft_saved: SavedShares
    drafted: int
    accepted: int
    acceptance: float | None
    verifications: int
    tokens_per_verification: float | None
    speedup: Quantiles
    equal_texts: int
    differences: list[Difference]


class SpeculationBatch(TypedDict):
    """One batch size."""

    batch: int
    greedy: Decoding
    points: list[SpeculationPoint]


class SpeculationRecord(TypedDict):
    """Everything measured.

    Attributes:
        version: Of the record's form.
        method: Spec it was trained as.
        shortened_prompts: How many were too long for the context.
    """

    kind: Literal["speculation"]
    version: int
    model: str
    method: str
    draft: Literal["fixed", "clasp"]
    settings: Settings
    texts: int
    shortened_prompts: int
    environment: Environment
    ideal: IdealPasses
    batches: list[SpeculationBatch]
