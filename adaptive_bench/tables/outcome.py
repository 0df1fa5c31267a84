"""Turns measured sweeps into rows of a table and scores of documents, with warnings for the reader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

import numpy as np

from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluation import SAVING_NAMES, Axis, MatchPhase, saving_name
from adaptive_bench.store.measured import Floats, MeasuredPoint, MeasuredSweep, MeasuredTraining
from adaptive_bench.store.records import SCHEMA
from adaptive_bench.tables.comparability import Conditions, both, environments
from adaptive_bench.tables.comparison import paired_difference
from adaptive_bench.tables.document_scores import answers_by_seed, is_pooled
from adaptive_bench.tables.intervals import bounds_of, interval
from adaptive_bench.tables.matching import Flaw, Status, flaws, meets, nearest, nearest_target
from adaptive_bench.tables.rows import SAVINGS, Row
from adaptive_bench.task import metric_of

CLAIM_TOLERANCE = 0.05  # a larger difference between claimed and measured skipping gives a warning
CONTROL_TOLERANCE = 0.02  # likewise for saved net FLOPs of a method and its control of shuffled decisions


def matched_rows(
    groups: Iterable[Sequence[MeasuredSweep]], axis: Axis, phase: MatchPhase
) -> tuple[list[Row], list[str]]:
    """Return the rows of all methods and tasks, and warnings about them.

    Args:
        groups: For each method and task its sweeps, as for `rows_of`. They hold the score of every document at every
            point, so each group is let go before the next one is taken.
        axis, phase: What the run was matched on.
    """
    tables = [rows_of(some, axis, phase) for some in groups]
    rows = [row for table, _ in tables for row in table]
    return rows, [*(text for _, said in tables for text in said), *_version_warnings(rows)]


def rows_of(sweeps: Sequence[MeasuredSweep], axis: Axis, phase: MatchPhase) -> tuple[list[Row], list[str]]:
    """Return the rows of one method on one task, and warnings about them. The training whose target is nearest to a
    level answers for it.

    Args:
        sweeps: Sweeps of every seed, target, split and control; a sweep without points was planned but is missing.
        axis, phase: What the run was matched on.
    """
    tests = [sweep for sweep in sweeps if sweep.split == "test"]
    own, controls = ([one for one in tests if one.variant == variant] for variant in ("", "shuffled"))
    if not any(sweep.points for sweep in own):
        return [], []
    levels = sorted({level for sweep in own for level in sweep.levels})
    cells = [_Cell(_trained_for(level, own), _trained_for(level, controls), level, axis, phase) for level in levels]
    # All points of a task have the same metrics, in the task's order.
    metrics = next(list(sweep.points[0].scores) for sweep in own if sweep.points)
    rows = [cell.row(metric) for metric in metrics for cell in cells]
    return rows, [*_dial_warnings(own, axis, phase), *_control_warnings(rows)]


def _trained_for(level: float, sweeps: Sequence[MeasuredSweep]) -> list[MeasuredSweep]:
    """Return the sweeps at a level whose training has the target nearest to it."""
    some = [sweep for sweep in sweeps if level in sweep.levels]
    chosen = nearest_target((sweep.target for sweep in some), level)
    return [sweep for sweep in some if sweep.target == chosen]


class _Cell:
    """A method on a task at one level: every seed at its measured point that is nearest to the level.

    Args:
        sweeps: One sweep for each seed.
        controls: Sweeps of the same models with the decisions of other tokens, at the same dial values; may be empty.
    """

    def __init__(
        self,
        sweeps: Sequence[MeasuredSweep],
        controls: Sequence[MeasuredSweep],
        level: float,
        axis: Axis,
        phase: MatchPhase,
    ) -> None:
        self.sweeps, self.controls, self.level, self.axis, self.phase = sweeps, controls, level, axis, phase
        self.name = saving_name(axis, phase)
        places = [nearest([one.savings.get(self.name) for one in sweep.points], level) for sweep in sweeps]
        # Seeds whose points do not know the saving drop out here; `_status` reports them.
        found = [(sweep, place) for sweep, place in zip(sweeps, places, strict=True) if place is not None]
        self.points = {sweep.seed: sweep.points[place] for sweep, place in found}
        self.savings = [one.savings[self.name] for one in self.points.values()]
        self.values = self._values()

    def _status(self) -> Status:
        if not self.points:
            return "missing"
        if len(self.points) < len(self.sweeps):
            return "partial"
        if any("inert" in _flaws(sweep, self.name) for sweep in self.sweeps):
            return "inert"
        return "ok" if all(meets(saving, self.level) for saving in self.savings) else "nearest"

    def _values(self) -> dict[str, Any]:
        """Return the columns that are the same for every metric."""
        first, points = self.sweeps[0], list(self.points.values())
        spec = MethodSpec.parse(first.method)
        means = {name: known_mean([one.savings.get(name) for one in points]) for name in SAVING_NAMES}
        claimed, executed = means["claimed"], means.get(saving_name("tokens", self.phase))
        some = next((sweep for sweep in self.sweeps if sweep.points), None)
        return {
            # Without its semantics, which is a column.
            "method": str(replace(spec, semantics="bench")),
            "semantics": spec.semantics,
            "task": first.task,
            "axis": self.axis,
            "phase": self.phase,
            "level": self.level,
            "saved": known_mean(self.savings),
            **({} if some is None else asdict(Conditions(**some.conditions))),
            "documents": min((len(one.documents.numbers) for one in points), default=0),
            **{f"saved_{name}": means.get(name) for name in SAVINGS},
            "claimed": claimed,
            "claimed_minus_executed": None if claimed is None or executed is None else claimed - executed,
            "projected_net": means.get(saving_name("projected", self.phase)),
            "projected_shape": next((one.projected_shape for one in points if one.projected_shape), None),
            "status": self._status(),
            **about_training([sweep.training for sweep in self.sweeps]),
            "eligible": first.eligible,
            "dial": known_mean([one.dial for one in points]),
            "seconds": known_mean([one.seconds for one in points]),
            "flops_per_token": known_mean([one.flops.get(self.phase) for one in points]),
            "bytes_per_token": known_mean([one.bytes_per_token for one in points]),
            "made_with": both(sweep.made_with for sweep in self.sweeps),
        }

    def row(self, metric: str) -> Row:
        """Return the row of a metric."""
        if not self.points:
            return Row(metric=metric, **self.values)
        scores, known = self._scores(metric, self.points), metric_of(metric)
        spread = interval(scores, bounds_of(known, [scores]))
        low, high = spread.low, spread.high
        if is_pooled(metric) and low is not None and high is not None:
            # The value of a document may lie outside of the metric's range, the metric itself may not.
            low, high = max(low, known.low), min(high, known.high)
        return Row(
            **self.values,
            metric=metric,
            score=fmean(one.scores[metric] for one in self.points.values()),
            low=low,
            high=high,
            interval=spread.levels,
            seed_error=spread.seed_error,
            document_error=spread.document_error,
            seeds=len(self.points),
            **self._with_other_decisions(metric),
        )

    def _scores(self, metric: str, points: Mapping[int, MeasuredPoint]) -> Floats:
        """Return the scores [S, D] of each seed; with one column if the metric is no mean over documents."""
        answers = answers_by_seed(metric, {seed: [one] for seed, one in points.items()})
        if answers:
            return np.array([one[0] for one in answers.values()])
        return np.array([[one.scores[metric]] for one in points.values()])

    def _with_other_decisions(self, metric: str) -> dict[str, Any]:
        """Return what the decisions are worth: the method compared with its control, which uses the decisions of other
        tokens in the same model, at the same dial values, seeds and documents. Empty if a seed has no control.
        """
        found: dict[int, MeasuredPoint] = {}
        for sweep in self.controls:
            if (own := self.points.get(sweep.seed)) is not None:
                # By what was asked: the control is measured at the method's own dial values.
                there = [one for one in sweep.points if one.asked_saving == own.asked_saving]
                found |= {sweep.seed: there[0]} if there else {}
        if not self.points or set(found) != set(self.points):
            return {}
        control = {seed: found[seed] for seed in self.points}
        first, second = self._scores(metric, self.points), self._scores(metric, control)
        # One side knows its documents and the other does not: both are compared by seeds alone.
        if first.shape != second.shape:
            first, second = (
                np.array([[one.scores[metric]] for one in some.values()]) for some in (self.points, control)
            )
        known = metric_of(metric)
        # If lower is better, the method is better by how much more the control scores.
        better, worse = (second, first) if known.better == "lower" else (first, second)
        worth = paired_difference(better, worse, bounds_of(known, (first, second)))
        apart = [one.savings["net"] - self.points[seed].savings["net"] for seed, one in control.items()]
        return {
            "shuffled_score": fmean(one.scores[metric] for one in control.values()),
            "decisions_worth": worth.difference,
            "decisions_low": worth.low,
            "decisions_high": worth.high,
            "shuffled_apart": max(apart, key=abs),
        }


def answers_of(sweep: MeasuredSweep) -> dict[str, Any]:
    """Return plain values of one finished sweep of test documents:

    method, semantics, task, seed, target: As in a row of the table.
    documents, documents_sha256: Indices of the documents, and the digest of their contents (`None` in older records).
    points: Measured dial values, each with `asked` (share of tokens it was asked to save), `dial`, `saved` (savings by
        name), `times` (saved time by setting), `seconds` in model calls, and `scores` by metric: one
        number for each document, or a text of `0` and `1` if there are no other scores. In a pooled metric the numbers
        are those of `document_values`. A metric that cannot be computed from the samples is left out.
    """
    spec, seed = MethodSpec.parse(sweep.method), sweep.seed
    tables = {
        metric: found[seed]
        for metric in sweep.points[0].scores
        if (found := answers_by_seed(metric, {seed: sweep.points}))
    }
    points = []
    for place, one in enumerate(sweep.points):
        tokens = one.savings.get("tokens")
        times = {name: None if tokens is None else curve.at(tokens) for name, curve in sweep.curves.items()}
        points.append(
            {
                "asked": one.asked_saving,
                "dial": one.dial,
                "saved": dict(one.savings),
                "times": {name: value for name, value in times.items() if value is not None},
                "seconds": one.seconds,
                "scores": {metric: _compact(table[place].tolist()) for metric, table in tables.items()},
            }
        )
    return {
        "method": str(replace(spec, semantics="bench")),
        "semantics": spec.semantics,
        "task": sweep.task,
        "seed": seed,
        "target": sweep.target,
        "documents": sorted(sweep.points[0].documents.numbers),
        "documents_sha256": sweep.documents_sha256,
        "points": points,
    }


def answers_file(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return plain values for `answers.json`, from those of `answers_of`."""
    return {"schema": SCHEMA, "sweeps": list(entries)}


def _version_warnings(rows: Sequence[Row]) -> list[str]:
    """Return a warning if not all rows were made with the same versions on the same device."""
    found = environments(row.made_with for row in rows)
    return [
        "Not everything in this table was made with the same versions on the same device (`made_with` in table.json "
        "says which): rounding may change answers that are nearly as likely, and trainings end with other weights."
    ] * (len(found) > 1)


def about_training(trainings: Sequence[MeasuredTraining]) -> dict[str, Any]:
    """Return what the trainings of a method cost, including those they start from, and their target; means over seeds.
    A cost that is not known for all trainings is `None`.
    """
    costs = [cost for training in trainings if (cost := _cost(training)) is not None]
    known = len(costs) == len(trainings)
    targets = [training.target for training in trainings if training.target is not None]
    return {
        "parameters_added": round(fmean(cost["parameters_added"] for cost in costs)) if known else None,
        "train_tokens": round(fmean(cost["tokens"] for cost in costs)) if known else None,
        "train_flops": fmean(cost["flops"] for cost in costs) if known else None,
        "target": targets[0]["saving"] if targets else None,
    }


def _cost(training: MeasuredTraining) -> Mapping[str, float] | None:
    """Return tokens and FLOPs of a training and those it starts from, and the parameters added by its own method."""
    cost = training.cost
    if cost is None or training.base is None:
        return cost
    base = _cost(training.base)
    return None if base is None else {**cost, **{key: cost[key] + base[key] for key in ("tokens", "flops")}}


def _flaws(sweep: MeasuredSweep, name: str) -> tuple[Flaw, ...]:
    return flaws((one.dial, one.savings.get(name)) for one in sweep.points)


def known_mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; `None` if a value is not known."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _dial_warnings(sweeps: Sequence[MeasuredSweep], axis: Axis, phase: MatchPhase) -> list[str]:
    """Return a sentence for each way in which a method's dial does not work on this axis in this phase, and one if the
    dial claims to skip what was not skipped.
    """
    first, name = sweeps[0], saving_name(axis, phase)
    where = axis if phase == "all" else f"{axis} in {phase}"
    found = {flaw for sweep in sweeps for flaw in _flaws(sweep, name)}
    said = [
        f"{first.method} on {first.task}: the dial moves nothing on the axis {where}. Does the method really skip?"
    ] * ("inert" in found)
    said += [f"{first.method} on {first.task}: the saving on the axis {where} does not follow the dial."] * (
        "non-monotone" in found
    )
    points = [one for sweep in sweeps for one in sweep.points]
    skipping = saving_name("tokens", phase)
    claims = [
        (one.savings["claimed"], one.savings[skipping]) for one in points if one.savings.keys() >= {"claimed", skipping}
    ]
    # The worst point of all seeds.
    claimed, skipped = max(claims, key=lambda pair: abs(pair[0] - pair[1]), default=(0.0, 0.0))
    if abs(claimed - skipped) > CLAIM_TOLERANCE:
        what = "token-branches" if phase == "all" else f"token-branches of {phase}"
        said.append(
            f"{first.method} on {first.task}: where the dial claims to skip {claimed:.1%} of the {what}, {skipped:.1%} "
            f"were skipped. Tables are matched on what was measured, unless on the axis `claimed`."
        )
    if points and not any(name in one.savings for one in points):
        said.append(f"{first.task}: the saving on the axis {where} is not known, so there is no table by it.")
    return said


def _control_warnings(rows: Sequence[Row]) -> list[str]:
    """Return a warning if a method and its control of shuffled decisions do not save the same at one dial value."""
    apart = [row for row in rows if row.shuffled_apart is not None and abs(row.shuffled_apart) > CONTROL_TOLERANCE]
    if not apart:
        return []
    row = max(apart, key=lambda one: abs(one.shuffled_apart or 0.0))
    return [
        f"{row.method} on {row.task}: at {row.level:.0%} the saved net FLOPs of the same model with the decisions of "
        f"other tokens differ from the method's own by {100 * (row.shuffled_apart or 0.0):+.1f} points: decisions on "
        f"the calibration text differ from those on the answers, or the control's answers have another length."
    ]


def _compact(values: Sequence[float]) -> str | list[float]:
    binary = all(value in (0.0, 1.0) for value in values)
    return "".join(str(int(value)) for value in values) if binary else list(values)
