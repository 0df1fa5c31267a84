"""Table rows: one for each method spec, task, metric and level. All tables and pages are made from them.

Levels are savings on the axis that the run is matched on; a row also has the savings on the other axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adaptive_bench.store.evaluation import Axis, MatchPhase
from adaptive_bench.tables.intervals import Levels
from adaptive_bench.tables.matching import Status

SAVINGS = ("layers", "tokens", "core", "net", "prefill_net", "decode_net")  # by `saving_name`


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell of a table; its fields are the columns of `table.json`, which docs/tables.md explains one by one.

    `None` stands for what is not known or does not apply: the score if no seed has a point, the interval of a single
    score, the saving of a phase without tokens, the control's columns if it was not measured at these dial values.

    Attributes:
        method: Spec without its semantics, for example `gateskip[gate=scalar]`.
        metric: lm-eval metric key.
        level: Saving at which methods are compared, as a share of `axis` over the tokens of `phase`.
        score: Mean over the seeds, each at its measured point nearest to the level. All savings and costs are measured
            at the same points.
        saved_layers, saved_tokens, saved_core, saved_net: Savings of both phases pooled, whatever the row's phase.
        decisions_worth: How much better the method scores than the control, whichever way the metric points.
        model, backbone, recipe, task_version, shots, asked, contents, definition: Together with `documents`, the
            conditions under which rows are comparable: see `comparability.Conditions`.
    """

    method: str
    semantics: str
    task: str
    metric: str
    axis: Axis
    phase: MatchPhase
    level: float
    saved: float | None = None
    score: float | None = None
    low: float | None = None
    high: float | None = None
    interval: Levels = "none"
    seed_error: float | None = None
    document_error: float | None = None
    seeds: int = 0
    documents: int = 0
    saved_layers: float | None = None
    saved_tokens: float | None = None
    saved_core: float | None = None
    saved_net: float | None = None
    saved_prefill_net: float | None = None
    saved_decode_net: float | None = None
    claimed: float | None = None
    claimed_minus_executed: float | None = None
    projected_net: float | None = None
    projected_shape: str | None = None
    status: Status = "missing"
    parameters_added: int | None = None
    train_tokens: int | None = None
    train_flops: float | None = None
    target: float | None = None
    eligible: str | None = None
    shuffled_score: float | None = None
    decisions_worth: float | None = None
    decisions_low: float | None = None
    decisions_high: float | None = None
    shuffled_apart: float | None = None
    dial: float | None = None
    seconds: float | None = None
    flops_per_token: float | None = None
    bytes_per_token: float | None = None
    model: str | None = None
    backbone: str | None = None
    recipe: str | None = None
    task_version: str | None = None
    shots: int | None = None
    asked: str | None = None
    contents: str | None = None
    definition: str | None = None
    made_with: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain values, with keys in the order of the fields."""
        return dict(vars(self))


def with_semantics(method: str, semantics: str) -> str:
    """Return a row's method with its semantics, unless that is the default `bench` or part of the method already."""
    return method if semantics == "bench" or method.endswith(f"@{semantics}") else f"{method}@{semantics}"
