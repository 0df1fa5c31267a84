"""Table rows: one for each method spec, task, metric, axis, phase and level. All tables and pages are made from them.

Axes and phases: what the ledger counts (`tokens`, `core`, `net`) is matched pooled over both phases, on prefill alone
and on decode alone; `claimed`, `projected` and `time` pooled only. A phase without tokens has no rows: log-likelihood
tasks have no `decode`, and their `prefill` is the prompts and the given answers that are scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any, TypedDict

from adaptive_bench.metric import Metric, metric_of
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluations import COUNTED, MATCH_PHASES, Axis, MatchPhase, Sample, saving_name
from adaptive_bench.store.measured import Documents, Measurement
from adaptive_bench.store.timings import TimeCurve
from adaptive_bench.tables.at_levels import LevelMatches, Measured
from adaptive_bench.tables.comparable import Conditions
from adaptive_bench.tables.crossed import Floats
from adaptive_bench.tables.document_scores import answers_by_seed
from adaptive_bench.tables.document_values import is_pooled
from adaptive_bench.tables.intervals import Bounds, Interval, Levels, bounds_of, intervals
from adaptive_bench.tables.matching import Status, flaws
from adaptive_bench.tables.points import point_of

# Between what a dial claims and what was skipped: more than this is said aloud.
CLAIM_TOLERANCE = 0.05
_WARNINGS = {
    "inert": "the dial moves nothing on the axis {axis} (inert). Check that the method really skips.",
    "non-monotone": "the saving on the axis {axis} does not follow the dial (non-monotone).",
}
_SAME = 1e-9


class About(TypedDict, total=False):
    """What a method's training adds to its rows; a key that is not there is not known.

    Attributes:
        parameters_added: Parameters the method adds to the backbone.
        train_tokens: Tokens the training read.
        train_flops: FLOPs it took.
        trained_for: By axis, the pooled saving the training aimed at.
        target_axis: The axis that it was set on.
        trained_without: Share of the layers that it ended without, of methods that skip whole layers.
    """

    parameters_added: int | None
    train_tokens: int | None
    train_flops: float | None
    trained_for: Mapping[str, float]
    target_axis: str
    trained_without: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell of a table.

    Attributes:
        method: Spec without its semantics, for example `gateskip[gate=scalar]`.
        semantics: `bench` or `paper`.
        task: Name of the task.
        metric: lm-eval metric key.
        axis: What the level is a share of: `tokens`, `core`, `net`, `claimed`, `projected`, `bytes` or `time`.
        phase: Which tokens count on the axis: `all`, `prefill` or `decode`.
        level: Saving at which methods are compared.
        score: Mean over the seeds that reached the level; `None` where none did.
        low, high: 95 % interval (see `intervals`) inside the metric's range, `None` where there is none.
        interval: What the interval knows of: the spread between `seeds and documents`, of one alone, or `none`.
        seed_error, document_error: Standard errors from either spread, `None` where it is not known.
        seeds: Number of seeds behind the score.
        documents: Number of documents behind it.
        saved_tokens, saved_core, saved_net: Mean measured savings at the level, both phases pooled whatever the row's.
        saved_prefill_*, saved_decode_*: Those of one phase; `None` where it has no tokens.
        claimed: What the dial says it saves there, as a share of token-branches.
        claimed_minus_executed: `claimed` less the tokens saved in the row's phase.
        projected_net: Net saving of the same decisions on `projected_shape` in the row's phase: a projection.
        status: `ok`; `outside` when no seed reached the level; `partial` when some did not; `inert` when the dial moves
            nothing.
        timing: On the axis `time`, the setting it was measured in, device included; else `None`.
        parameters_added, train_tokens, train_flops: See `About`.
        target: Of several savings the method was trained towards, the one that serves this level, by validation
            documents; `None` where there is no choice.
        beyond_target: Whether the level lies beyond what the method was trained for; `None` where that is not known.
        below_target: Whether it is less than half of that: a method pays there for a saving that nobody asks of it.
        target_axis: The axis it was trained for a saving on; `None` where it was trained for none, or in older records.
        trained_without: Share of the layers that no token ran at the end of training; `None` for methods that do not
            skip whole layers, and in older records. At another `saved_tokens` the method was not trained for that.
        eligible: Where tokens may skip, as the method says: `layers 1-7`; `None` in older records.
        shuffled_score: Score of the same models with the decisions of other tokens, at the same level; `None` where
            that control was not measured or did not reach it.
        decisions_worth: How much better the method is than that, positive whichever way the metric is better.
        decisions_low, decisions_high: Its 95 % interval, `None` where there is a single pair of scores.
        shuffled_apart: Net saving of the control less the method's at one dial value, where they are furthest apart;
            `None` where the control was not measured at every dial value that the score was read off.
        dial: Dial value at the level, read off like the score.
        gap: How far the measured savings are apart between which the score was read off, of several seeds the widest.
        distance: How far the level is from the further one of the two, 0 where one is within half a point; of several
            seeds the furthest.
        seconds: Spent inside model calls there, on all documents.
        flops_per_token: FLOPs that a token fed in the row's phase costs there on average, all that the method adds
            included; `None` where that is not known.
        bytes_per_token: Bytes that a written token reads there on average, fed alone (`store.evaluations.TokenBytes`);
            `None` where that is not known, and in older tables.
        ms_per_token: On the axis `time`, milliseconds for each new token there, its prompt's time included and the
            batch sharing it; else `None`.
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
    score: float | None = None
    low: float | None = None
    high: float | None = None
    interval: Levels = "none"
    seed_error: float | None = None
    document_error: float | None = None
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
    status: Status = "outside"
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
    dial: float | None = None
    gap: float | None = None
    distance: float | None = None
    seconds: float | None = None
    flops_per_token: float | None = None
    bytes_per_token: float | None = None
    ms_per_token: float | None = None
    model: str | None = None
    backbone: str | None = None
    recipe: str | None = None
    task_version: str | None = None
    shots: int | None = None
    asked: str | None = None
    contents: str | None = None
    definition: str | None = None
    made_with: str | None = None

    def but(self, **values: Any) -> Row:
        """The row with other values of some fields. A table has thousands: `replace` takes five times as long."""
        found = copy(self)
        vars(found).update(values)
        return found

    def to_json(self) -> dict[str, Any]:
        """The row as plain values, keys in the order of the fields."""
        return dict(vars(self))


def table_rows(
    spec: MethodSpec,
    task: str,
    metrics: Iterable[str],
    evaluations: Mapping[int, Sequence[Measurement]],
    levels: Sequence[float],
    curves: Mapping[str, TimeCurve] | None = None,
    about: About | None = None,
    samples: Mapping[int, Sequence[Sequence[Sample] | Documents]] | None = None,
    conditions: Conditions | None = None,
) -> list[Row]:
    """Rows of one method on one task, on every axis and phase, and on saved time for each setting it was timed in.

    Each seed is matched on its own; then the matched scores are averaged.

    Args:
        spec: The method.
        task: Name of the task.
        metrics: lm-eval metric keys, headline first.
        evaluations: Evaluations by seed. A planned seed without any makes its rows partial.
        levels: Levels, the same ones on every axis.
        curves: Saved time of this method by setting.
        about: What is known of its training.
        samples: For each evaluation its documents; without them intervals know of seeds alone.
        conditions: What the rows are comparable under.
    """
    everything = [one for done in evaluations.values() for one in done]
    about = about or {}
    same = Row(
        method=str(replace(spec, semantics="bench")),
        semantics=spec.semantics,
        task=task,
        metric="",
        axis="net",
        phase="all",
        level=0.0,
        documents=min((one.docs for one in everything), default=0),
        projected_shape=next((one.projected_shape for one in everything if one.projected_shape), None),
        parameters_added=about.get("parameters_added"),
        train_tokens=about.get("train_tokens"),
        train_flops=about.get("train_flops"),
        target_axis=about.get("target_axis"),
        trained_without=about.get("trained_without"),
    )
    if conditions is not None:
        same = same.but(**asdict(conditions))
    measured = [Measured(done) for done in evaluations.values() if done]
    tables: list[tuple[Axis, MatchPhase, str | None]] = [(axis, phase, None) for axis, phase in _axes(everything)]
    tables += [("time", "all", setting) for setting in curves or {}]
    found: list[tuple[LevelMatches, list[Row]]] = []
    for axis, phase, setting in tables:
        curve = None if setting is None or curves is None else curves[setting]
        matched = [seed.mixes(axis, phase, levels, curve) for seed in measured]
        places = LevelMatches(axis, phase, measured, matched, curve)
        of_axis = same.but(axis=axis, phase=phase, timing=setting)
        rows = []
        for position, level in enumerate(levels):
            beyond, below = _off_target(about, axis, phase, level)
            means = places.means(position, len(evaluations))
            rows.append(of_axis.but(level=level, beyond_target=beyond, below_target=below, **means))
        found.append((places, rows))
    return [row for metric in metrics for row in _scored(metric, found, evaluations, samples or {})]


def dial_warnings(
    spec: MethodSpec,
    task: str,
    metric: str,
    evaluations: Mapping[int, Sequence[Measurement]],
    axis: Axis,
    curve: TimeCurve | None = None,
    phase: MatchPhase = "all",
) -> list[str]:
    """One sentence for each way in which a method's dial does not work as a dial on this axis in this phase (on saved
    time, by the curve it was matched on), and one if it claims what was not skipped.
    """
    name = saving_name(axis, phase)
    found = {
        flaw for done in evaluations.values() for flaw in flaws([point_of(one, metric, curve) for one in done], name)
    }
    where = axis if phase == "all" else f"{axis} in {phase}"
    said = [f"{spec} on {task}: " + _WARNINGS[flaw].format(axis=where) for flaw in sorted(found)]
    claims = [
        (one.claimed, tokens)
        for done in evaluations.values()
        for one in done
        if one.claimed is not None and (tokens := one.saved("tokens", phase)) is not None
    ]
    claimed, skipped = max(claims, key=lambda pair: abs(pair[0] - pair[1]), default=(0.0, 0.0))
    if abs(claimed - skipped) > CLAIM_TOLERANCE:
        what = "token-branches" if phase == "all" else f"token-branches of {phase}"
        said.append(
            f"{spec} on {task}: where the dial claims to skip {claimed:.1%} of the {what}, {skipped:.1%} were "
            f"skipped. Tables are matched on what was measured, unless on the axis `claimed`."
        )
    return said


def _axes(evaluations: Sequence[Measurement]) -> list[tuple[Axis, MatchPhase]]:
    """Pooled counts in any case, everything else where some evaluation knows it."""
    wanted: list[tuple[Axis, MatchPhase]] = [(axis, phase) for phase in MATCH_PHASES for axis in COUNTED]
    wanted += [("claimed", "all"), ("projected", "all"), ("bytes", "all")]
    return [
        (axis, phase)
        for axis, phase in wanted
        if (axis in COUNTED and phase == "all") or any(one.saved(axis, phase) is not None for one in evaluations)
    ]


def _off_target(about: About, axis: Axis, phase: MatchPhase, level: float) -> tuple[bool | None, bool | None]:
    """Whether a level lies beyond what a training aimed at, and far below it."""
    target = about.get("trained_for", {}).get(axis) if phase == "all" else None
    return (None, None) if target is None else (level > target + _SAME, level < target / 2 - _SAME)


def _scored(
    metric: str,
    found: Sequence[tuple[LevelMatches, list[Row]]],
    evaluations: Mapping[int, Sequence[Measurement]],
    samples: Mapping[int, Sequence[Sequence[Sample] | Documents]],
) -> list[Row]:
    """Rows with the scores of a metric and their intervals."""
    answers = list(answers_by_seed(metric, evaluations, samples).values())
    known = metric_of(metric)
    rows: list[Row] = []
    tables: list[tuple[Floats, Bounds]] = []
    for places, of_axis in found:
        by_level = places.scores([seed.scores(metric) for seed in places.seeds], answers, len(of_axis))
        for row, (reached, table) in zip(of_axis, by_level, strict=True):
            if not reached:
                rows.append(row.but(metric=metric))
                continue
            rows.append(row.but(metric=metric, score=fmean(reached), seeds=len(reached)))
            tables.append((table, bounds_of(known, [table])))
    spreads = iter(intervals(tables))
    pooled = known if is_pooled(metric) else None  # the value of a document may lie outside, the metric's may not
    return [row if row.score is None else _with_spread(row, next(spreads), pooled) for row in rows]


def _with_spread(row: Row, spread: Interval, inside: Metric | None) -> Row:
    low, high = spread.low, spread.high
    if inside is not None and low is not None and high is not None:
        low, high = max(low, inside.low), min(high, inside.high)
    return row.but(
        low=low,
        high=high,
        interval=spread.levels,
        seed_error=spread.seed_error,
        document_error=spread.document_error,
    )
