"""Table rows: one for each method spec, task, metric and level. All tables and pages are made from them.

Levels are savings on the axis that the run is matched on; a row also has the savings on the other axes.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, Self

from adaptive_bench.store.evaluation import Axis, MatchPhase
from adaptive_bench.tables.intervals import Levels
from adaptive_bench.tables.matching import Status

SAVINGS = ("layers", "tokens", "core", "net", "prefill_net", "decode_net")  # by `saving_name`


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell of a table.

    Attributes:
        method: Spec without its semantics, for example `gateskip[gate=scalar]`.
        semantics: `bench` or `paper`.
        task: Name of the task.
        metric: lm-eval metric key.
        axis: What the level is a share of: `layers`, `net`, `core`, `tokens`, `claimed` or `bytes`.
        phase: Which tokens count on the axis: `all`, `prefill` or `decode`.
        level: Saving at which methods are compared.
        saved: Measured saving on that axis at the measured points, mean over the seeds.
        score: Mean over the seeds, each at its measured point nearest to the level; `None` if no seed has a point. The
            savings and costs below are measured at the same points.
        low, high: 95 % interval (see `intervals`) inside the metric's range; `None` if there is none.
        interval: What spread the interval takes into account: between `seeds and documents`, between one of the two
            alone, or `none`.
        seed_error, document_error: Standard error from each spread; `None` if it is not known.
        seeds: Number of seeds behind the score.
        documents: Number of documents behind the score.
        saved_layers, saved_tokens, saved_core, saved_net: Mean measured savings; both phases pooled, whatever the row's
            phase.
        saved_prefill_net, saved_decode_net: Mean net saving of one phase; `None` if the phase has no tokens.
        claimed: What the dial claims to save, as a share of token-branches.
        claimed_minus_executed: `claimed` minus the tokens saved in the row's phase.
        projected_net: Net saving of the same decisions on `projected_shape` in the row's phase: a projection.
        status: `ok`; `nearest` if a seed has no point within one percentage point of the level; `partial` if some seeds
            are missing; `missing` if all are; `inert` if the dial moves nothing.
        parameters_added: Number of parameters that the method adds to the backbone.
        train_tokens, train_flops: Tokens and FLOPs of its training, including the training it starts from.
        target: The saving that the method was trained towards; `None` if it was trained towards none.
        eligible: Where tokens may skip, as the method says: `layers 1-7`; `None` in older records.
        shuffled_score: Score of the control: the same models with the decisions of other tokens, at the same dial
            values. `None` if the control was not measured at these values.
        decisions_worth: How much better the method scores than the control; positive if the method is better,
            whichever way the metric points.
        decisions_low, decisions_high: 95 % interval of `decisions_worth`; `None` if there is a single pair of scores.
        shuffled_apart: Net saving of the control minus the method's at the same dial values, for the seed with the
            largest difference.
        dial: Dial value, mean over the seeds.
        seconds: Seconds spent inside model calls on all documents, mean over the seeds.
        flops_per_token: Mean FLOPs of a token fed in the row's phase, with everything that the method adds; `None` if
            they are not known.
        bytes_per_token: Mean bytes read per written token at batch size 1 (`store.evaluation.TokenBytes`);
            `None` if they are not known, and in older tables.
        made_with: Versions and devices that the records behind the row were made with.
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

    def but(self, **values: Any) -> Self:
        """Return the row with other values in some fields. `dataclasses.replace` would take five times as long, and a
        table has thousands of rows.
        """
        found = copy(self)
        vars(found).update(values)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain values, with keys in the order of the fields."""
        return dict(vars(self))


def with_semantics(method: str, semantics: str) -> str:
    """Return a row's method with its semantics, unless that is the default `bench` or part of the method already."""
    return method if semantics == "bench" or method.endswith(f"@{semantics}") else f"{method}@{semantics}"
