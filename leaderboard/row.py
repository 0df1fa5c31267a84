"""A row of a board: a score of a table with all that belongs to it, and what the board adds to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, TypeVar

from adaptive_bench import registry
from adaptive_bench.metric import metric_of
from adaptive_bench.store.evaluations import Axis, MatchPhase
from adaptive_bench.tables.comparable import Conditions, conditions_of
from adaptive_bench.tables.crossed import Floats
from adaptive_bench.task import Task

Score = TypeVar("Score", float, Floats)


@dataclass(slots=True, kw_only=True)
class Row:
    """A score at a level, with the columns of `table.json`, which `docs/tables.md` explains, under their names.

    Rows of earlier versions have fewer columns. What is not known is `None`.

    Attributes:
        run: End of a run's name where runs disagree on the method's scores, see `tables.finished.joined`.
        beside: Of a row without `run` the run that it is of, where runs disagree on the dense model: it is held to that
            run's.
        kept, kept_low, kept_high, kept_own, area, keeps_90, keeps_90_to_end: See `curves.add_curves`.
        rank_low, rank_high, compared_to, difference, ...: See `paired.add_tests`.
        evidence, checked, external: What stands behind it, see `entry.Entry.of_row`; `None` in a run that is no entry.
        base, dense: Scores of the model before training and of the dense model, see `curves.add_curves`; no columns.
        conditions: What it was measured under; rows of other conditions are not comparable.
    """

    method: str
    semantics: str = "bench"
    task: str
    metric: str
    axis: Axis
    phase: MatchPhase = "all"
    level: float
    score: float | None
    low: float | None = None
    high: float | None = None
    seeds: int = 0
    documents: int = 0
    saved_tokens: float | None = None
    saved_core: float | None = None
    saved_net: float | None = None
    saved_prefill_tokens: float | None = None
    saved_prefill_core: float | None = None
    saved_prefill_net: float | None = None
    saved_decode_tokens: float | None = None
    saved_decode_core: float | None = None
    saved_decode_net: float | None = None
    claimed: float | None = None
    claimed_minus_executed: float | None = None
    projected_net: float | None = None
    projected_shape: str | None = None
    status: str = "ok"
    timing: str | None = None
    parameters_added: int | None = None
    train_tokens: int | None = None
    train_flops: float | None = None
    target: float | None = None
    beyond_target: bool | None = None
    below_target: bool | None = None
    target_axis: str | None = None
    trained_without: float | None = None
    eligible: str | None = None
    shuffled_score: float | None = None
    decisions_worth: float | None = None
    decisions_low: float | None = None
    decisions_high: float | None = None
    shuffled_apart: float | None = None
    gap: float | None = None
    distance: float | None = None
    dial: float | None = None
    seconds: float | None = None
    flops_per_token: float | None = None
    bytes_per_token: float | None = None
    ms_per_token: float | None = None
    shots: int | None = None
    model: str | None = None
    backbone: str | None = None
    recipe: str | None = None
    task_version: str | None = None
    asked: str | None = None
    contents: str | None = None
    definition: str | None = None
    made_with: str | None = None
    evidence: str | None = None
    checked: bool | None = None
    external: str | None = None
    run: str | None = None
    beside: str | None = None
    kept: float | None = None
    kept_low: float | None = None
    kept_high: float | None = None
    kept_own: float | None = None
    area: float | None = None
    keeps_90: float | None = None
    keeps_90_to_end: bool | None = None
    rank_low: int | None = None
    rank_high: int | None = None
    compared_to: str | None = None
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    difference_p: float | None = None
    over_random: float | None = None
    over_random_low: float | None = None
    over_random_high: float | None = None
    over_random_p: float | None = None
    over_static: float | None = None
    over_static_low: float | None = None
    over_static_high: float | None = None
    over_static_p: float | None = None
    tested_seeds: int | None = None
    tested_documents: int | None = None
    base: float | None = None
    dense: float | None = None
    conditions: Conditions = field(repr=False)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Row:
        """A row of a `table.json`; columns that a board knows nothing of are left out."""
        known = {name: value for name, value in values.items() if name in COLUMNS}
        return cls(**known, conditions=conditions_of(values))

    @property
    def spec(self) -> str:
        """The method with its semantics, unless that is the default `bench` or part of the method already."""
        ready = self.semantics == "bench" or self.method.endswith(f"@{self.semantics}")
        return self.method if ready else f"{self.method}@{self.semantics}"

    @property
    def label(self) -> str:
        """What the row's method is called on this board: its spec, and its run where runs disagree."""
        return self.spec if self.run is None else f"{self.spec} ({self.run})"

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the score's interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def reached(self) -> float:
        """The score, of a row that has one."""
        assert self.score is not None
        return self.score

    @property
    def nothing(self) -> float | None:
        """The score that counts as 0: that of the model before training or of a guess, whichever is better, as far as
        they are known; where higher is better at least 0.
        """
        better = metric_of(self.metric).better
        known = [one for one in (self.base, chance_of(self.task, self.metric)) if one is not None]
        if better == "higher":
            return max([0.0, *known])
        return min(known, default=None) if better == "lower" else None

    @property
    def is_scaled(self) -> bool:
        """Whether the dense model is known to be better than `nothing`: else there is no scale between the two."""
        if self.dense is None or self.nothing is None:
            return False
        return self.dense < self.nothing if metric_of(self.metric).better == "lower" else self.dense > self.nothing

    def scaled(self, scores: Score) -> Score:
        """Scores of the row's metric with 0 for `nothing` and 1 for the dense model, linear between and beyond; of a
        row that `is_scaled`.
        """
        assert self.dense is not None and self.nothing is not None
        return (scores - self.nothing) / (self.dense - self.nothing)

    def plain(self) -> dict[str, Any]:
        """Its columns by name, what it is called first."""
        return {"label": self.label} | {name: getattr(self, name) for name in COLUMNS}


_NO_COLUMNS = ("base", "dense", "conditions")
COLUMNS = dict.fromkeys(one.name for one in fields(Row) if one.name not in _NO_COLUMNS)
OF_A_TABLE = [*COLUMNS][: [*COLUMNS].index("evidence")]  # before what the board adds


@cache
def chance_of(task: str, metric: str) -> float | None:
    """What a guess scores, of a task that is registered here and of its first metric."""
    name = task.partition(":")[0]
    found = registry.get("tasks", name) if name in registry.names("tasks") else None
    if not isinstance(found, Task) or metric != found.metrics[0] or math.isnan(found.chance):
        return None
    return found.chance
