"""Table rows: one for each method spec, task, metric and level. All tables and pages are made from them.

Levels are shares of what the run is matched on; whatever else is known to be saved there stands beside.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, Self

from adaptive_bench.store.evaluations import Axis, MatchPhase
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
        axis: What the level is a share of: `layers`, `net`, `core`, `tokens`, `claimed`, `bytes` or `time`.
        phase: Which tokens count on the axis: `all`, `prefill` or `decode`.
        level: Saving at which methods are compared.
        saved: Measured saving on that axis where the score was measured, mean over the seeds.
        score: Mean over the seeds, each at its measured point nearest to the level; `None` where none has a point.
        low, high: 95 % interval (see `intervals`) inside the metric's range, `None` where there is none.
        interval: What the interval knows of: the spread between `seeds and documents`, of one alone, or `none`.
        seed_error, document_error: Standard errors from either spread, `None` where it is not known.
        seeds: Number of seeds behind the score.
        documents: Number of documents behind it.
        saved_layers, saved_tokens, saved_core, saved_net: Mean measured savings there, both phases pooled whatever the
            row's.
        saved_prefill_net, saved_decode_net: Those of one phase; `None` where it has no tokens.
        claimed: What the dial says it saves there, as a share of token-branches.
        claimed_minus_executed: `claimed` less the tokens saved in the row's phase.
        projected_net: Net saving of the same decisions on `projected_shape` in the row's phase: a projection.
        status: `ok`; `nearest` where a seed has no point within a point of saving of the level; `partial` where seeds
            are missing, `missing` where all are; `inert` where the dial moves nothing.
        timing: On the axis `time`, the setting it was measured in, device included; else `None`.
        parameters_added: How many the method adds to the backbone.
        train_tokens, train_flops: What its training read and took, that of a model it starts from included.
        target: The saving that the method was trained towards; `None` where it was trained towards none.
        eligible: Where tokens may skip, as the method says: `layers 1-7`; `None` in older records.
        shuffled_score: Score of the same models with the decisions of other tokens, at the same level; `None` where
            that control was not measured or did not reach it.
        decisions_worth: How much better the method is than that, positive whichever way the metric is better.
        decisions_low, decisions_high: Its 95 % interval, `None` where there is a single pair of scores.
        shuffled_apart: Net saving of the control less the method's at its dial values, of the seed where they are
            furthest apart.
        dial: Dial value there, mean over the seeds.
        seconds: Spent inside model calls there, on all documents.
        flops_per_token: FLOPs that a token fed in the row's phase costs there on average, all that the method adds
            included; `None` where that is not known.
        bytes_per_token: Bytes that a written token reads there on average, fed alone (`store.evaluations.TokenBytes`);
            `None` where that is not known, and in older tables.
        made_with: Versions and devices that the records behind the row were made with.
        model, backbone, recipe, task_version, shots, asked, contents, definition: With `documents`, what it is
            comparable under: see `comparable.Conditions`.
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
    timing: str | None = None
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
        """The row with other values of some fields. A table has thousands: `replace` takes five times as long."""
        found = copy(self)
        vars(found).update(values)
        return found

    def to_json(self) -> dict[str, Any]:
        """The row as plain values, keys in the order of the fields."""
        return dict(vars(self))
