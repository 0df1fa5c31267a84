"""Table rows: one for each method spec, task, metric, axis and level. Tables, pages and files are made from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from adaptive_bench.evaluation.matching import AXES, Axis, Matched, Status, flaws, match
from adaptive_bench.evaluation.record import Evaluation
from adaptive_bench.evaluation.statistics import summarize
from adaptive_bench.evaluation.time_axis import TimeCurve
from adaptive_bench.spec import MethodSpec

# Metrics that are a share of documents: one seed of them has a binomial interval.
_SHARES = {"acc", "acc_norm", "acc_bytes", "exact_match"}
_WARNINGS = {
    "inert": "the dial moves nothing on the axis {axis} (inert). Check that the method really skips.",
    "non-monotone": "the saving on the axis {axis} does not follow the dial (non-monotone).",
}


@dataclass(frozen=True)
class Row:
    """One cell of a table.

    Attributes:
        method: Spec without its semantics, for example `gateskip[gate=scalar]`.
        semantics: `bench` or `paper`.
        task: Name of the task.
        metric: lm-eval metric key.
        axis: What the level is a share of: `tokens`, `core`, `net` or `time`.
        level: Saving at which methods are compared.
        score: Mean over the seeds that reached the level; `None` where none did.
        low, high: 95 % interval (see `statistics`), `None` where there is none.
        seeds: Number of seeds behind the score.
        saved_tokens, saved_core, saved_net: Mean measured savings at the level.
        status: `ok`; `outside` when no seed reached the level; `partial` when some did not; `inert` when the dial moves
            nothing.
        timing: On the axis `time`, the setting it was measured in, device included; else `None`.
    """

    method: str
    semantics: str
    task: str
    metric: str
    axis: Axis
    level: float
    score: float | None
    low: float | None
    high: float | None
    seeds: int
    saved_tokens: float | None
    saved_core: float | None
    saved_net: float | None
    status: Status
    timing: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The row as plain values, keys in the order of the fields."""
        return asdict(self)


def table_rows(
    spec: MethodSpec,
    task: str,
    metrics: Iterable[str],
    evaluations: Mapping[int, Sequence[Evaluation]],
    levels: Sequence[float],
    curves: Mapping[str, TimeCurve] | None = None,
) -> list[Row]:
    """Rows of one method on one task, on all three axes, and on saved time for each setting it was timed in.

    Each seed is matched on its own; then the matched scores are averaged.

    Args:
        spec: The method.
        task: Name of the task.
        metrics: lm-eval metric keys, headline first.
        evaluations: Evaluations by seed. A planned seed without any makes its rows partial.
        levels: Levels, the same ones on every axis.
        curves: Saved time of this method by setting.
    """
    rows = []
    axes: list[tuple[Axis, str | None]] = [(axis, None) for axis in AXES]
    axes += [("time", setting) for setting in curves or {}]
    for metric in metrics:
        for axis, setting in axes:
            curve = None if setting is None or curves is None else curves[setting]
            by_seed = [match([one.point(metric, curve) for one in done], levels, axis) for done in evaluations.values()]
            documents = min((one.docs for done in evaluations.values() for one in done), default=0)
            shares = documents if metric.split(",")[0] in _SHARES else None
            for position, level in enumerate(levels):
                matched = [seed[position] for seed in by_seed]
                rows.append(replace(_row(spec, task, metric, axis, level, matched, shares), timing=setting))
    return rows


def dial_warnings(
    spec: MethodSpec,
    task: str,
    metric: str,
    evaluations: Mapping[int, Sequence[Evaluation]],
    axis: Axis,
    curve: TimeCurve | None = None,
) -> list[str]:
    """One sentence for each way in which a method's dial does not work as a dial on this axis; on saved time, by the
    curve it was matched on.
    """
    found = {flaw for done in evaluations.values() for flaw in flaws([one.point(metric, curve) for one in done], axis)}
    return [f"{spec} on {task}: " + _WARNINGS[flaw].format(axis=axis) for flaw in sorted(found)]


def _row(
    spec: MethodSpec, task: str, metric: str, axis: Axis, level: float, matched: list[Matched], documents: int | None
) -> Row:
    method = str(replace(spec, semantics="bench"))
    reached = [seed for seed in matched if seed.score is not None]
    if not reached:
        return Row(method, spec.semantics, task, metric, axis, level, None, None, None, 0, None, None, None, "outside")
    summary = summarize([seed.score for seed in reached if seed.score is not None], documents)
    status: Status = "ok"
    if len(reached) < len(matched):
        status = "partial"
    elif any(seed.status == "inert" for seed in reached):
        status = "inert"
    return Row(
        method,
        spec.semantics,
        task,
        metric,
        axis,
        level,
        summary.mean,
        summary.low,
        summary.high,
        summary.seeds,
        _mean(seed.saved_tokens for seed in reached),
        _mean(seed.saved_core for seed in reached),
        _mean(seed.saved_net for seed in reached),
        status,
    )


def _mean(values: Iterable[float | None]) -> float:
    return fmean(value for value in values if value is not None)
