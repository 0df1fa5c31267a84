"""What measured sweeps come to: rows of a table, scores of documents, and what a reader should know about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from adaptive_bench.metric import metric_of
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluations import Axis, MatchPhase
from adaptive_bench.store.measured import MeasuredSweep, MeasuredTraining
from adaptive_bench.store.records import SCHEMA
from adaptive_bench.tables.comparable import Conditions
from adaptive_bench.tables.document_scores import answers_by_seed
from adaptive_bench.tables.made_with import both, environments
from adaptive_bench.tables.points import point_of, saved_time
from adaptive_bench.tables.rows import About, Row, dial_warnings, table_rows
from adaptive_bench.tables.shuffled import TOLERANCE, SeedPoints, savings_apart, with_control

_NEAR = 0.01  # of the saving that a training aimed at


def rows_of(sweeps: Sequence[MeasuredSweep], axis: Axis, phase: MatchPhase) -> tuple[list[Row], list[str]]:
    """Rows of one method on one task, and what is wrong with them.

    Args:
        sweeps: Of every seed, target, split and control; those without points are planned, and missing.
        axis, phase: What the run was matched on.
    """
    warnings: list[str] = []
    by_target: defaultdict[float | None, list[MeasuredSweep]] = defaultdict(list)
    for sweep in sweeps:
        by_target[sweep.target].append(sweep)
    tables: dict[float | None, list[Row]] = {}
    # Not in the order of the plan, which another one has that is made of the same records.
    for target, of_target in sorted(by_target.items(), key=lambda one: -1.0 if one[0] is None else one[0]):
        tests = [sweep for sweep in of_target if sweep.split == "test"]
        own = [sweep for sweep in tests if not sweep.variant]
        if not any(sweep.points for sweep in own):
            continue
        tables[target] = _rows(own)
        if controls := [sweep for sweep in tests if sweep.variant == "shuffled"]:
            tables[target] = _beside_control(own, controls, tables[target], warnings)
        warnings += _dial_warnings(own, tables[target], axis, phase)
    if len(tables) == 1:
        return next(iter(tables.values())), warnings
    return (_best_on_validation(by_target, tables) if tables else []), warnings


def answers_of(sweep: MeasuredSweep) -> dict[str, Any]:
    """Plain values of one finished sweep of test documents:

    method, semantics, task, seed, target: As in a row of the table.
    documents, documents_sha256: Their indices, and the digest of what they are (`None` in older records).
    plain_ms: By setting milliseconds that the plain model took for each new token (`TimeCurve.plain_ms`).
    points: Measured dial values, each with `asked` (share of tokens it was asked to save), `dial`, `saved` (savings by
        name, as in `Point`), `times` (saved time by setting), and `scores` by metric: one number for each document, a
        text of `0` and `1` where there are no others, in a pooled metric what `document_values` says. A metric that
        samples do not make up is not there.
    """
    spec, seed = MethodSpec.parse(sweep.method), sweep.seed
    tables = {
        metric: found[seed]
        for metric in sweep.points[0].scores
        if (found := answers_by_seed(metric, {seed: sweep.points}, {seed: sweep.documents}))
    }
    points = []
    for place, one in enumerate(sweep.points):
        saved = point_of(one, next(iter(one.scores))).saved
        times = {setting: saved_time(one, curve) for setting, curve in sweep.curves.items()}
        points.append(
            {
                "asked": one.asked,
                "dial": one.dial,
                "saved": {name: value for name, value in saved.items() if value is not None},
                "times": {name: value for name, value in times.items() if value is not None},
                "scores": {metric: _compact(table[place].tolist()) for metric, table in tables.items()},
            }
        )
    return {
        "method": str(replace(spec, semantics="bench")),
        "semantics": spec.semantics,
        "task": sweep.task,
        "seed": seed,
        "target": sweep.target,
        "documents": sorted(sweep.documents[0].numbers),
        "documents_sha256": sweep.documents_sha256,
        "plain_ms": {name: ms for name, curve in sweep.curves.items() if (ms := curve.plain_ms) is not None},
        "points": points,
    }


def answers_file(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Plain values for `answers.json`, from those of `answers_of`."""
    return {"schema": SCHEMA, "sweeps": list(entries)}


def version_warnings(rows: Sequence[Row]) -> list[str]:
    """That not all rows were made with the same versions on the same device."""
    found = environments(row.made_with for row in rows)
    return [
        "Not everything in this table was made with the same versions on the same device (`made_with` in table.json "
        "says which): nearly as likely answers may differ by rounding, and trainings end at other weights."
    ] * (len(found) > 1)


def about_training(trainings: Sequence[MeasuredTraining]) -> About:
    """What the trainings of a method cost, those they start from included, and what they aimed at; means over seeds."""
    costs = [cost for training in trainings if (cost := _cost(training)) is not None]
    about = About()
    if len(costs) == len(trainings):
        about = About(
            parameters_added=round(fmean(cost["parameters_added"] for cost in costs)),
            train_tokens=round(fmean(cost["tokens"] for cost in costs)),
            train_flops=fmean(cost["flops"] for cost in costs),
        )
    targets = [training.target for training in trainings if training.target is not None]
    if targets:
        reached = {axis: fmean(target["priced"][axis] for target in targets) for axis in targets[0]["priced"]}
        axis, saving = targets[0]["axis"], targets[0]["saving"]
        if targets[0].get("whole_layers"):  # a number of layers is the same on every axis
            about["trained_without"] = fmean(target["tokens"] for target in targets)
        else:
            about["target_axis"] = axis
        near = abs(reached[axis] - saving) <= _NEAR  # pricing stops close to the target; else the dial ended before it
        about["trained_for"] = (
            reached | {"claimed": fmean(target["tokens"] for target in targets)} | ({axis: saving} if near else {})
        )
    return about


def _cost(training: MeasuredTraining) -> Mapping[str, float] | None:
    """Tokens and FLOPs of a training and of those it starts from; parameters of its own method."""
    cost = training.cost
    if cost is None or training.base is None:
        return cost
    base = _cost(training.base)
    return None if base is None else {**cost, **{key: cost[key] + base[key] for key in ("tokens", "flops")}}


def _rows(sweeps: Sequence[MeasuredSweep]) -> list[Row]:
    """Rows of one spec, trained towards one target, on one task."""
    first = sweeps[0]
    some = next(sweep for sweep in sweeps if sweep.points)
    rows = table_rows(
        MethodSpec.parse(first.method),
        first.task,
        list(some.points[0].scores),
        {sweep.seed: sweep.points for sweep in sweeps},
        first.levels,
        first.curves,
        about_training([sweep.training for sweep in sweeps]),
        {sweep.seed: sweep.documents for sweep in sweeps},
        Conditions(**some.conditions),
    )
    # A seed without points was not "outside" a level: it is missing.
    partial = {} if all(sweep.points for sweep in sweeps) else {"status": "partial"}
    made = both(sweep.made_with for sweep in sweeps)
    return [row.but(made_with=made, eligible=first.eligible, **partial) for row in rows]


def _by_seed(sweeps: Sequence[MeasuredSweep]) -> dict[int, SeedPoints]:
    return {
        sweep.seed: SeedPoints([one.asked for one in sweep.points], sweep.points, sweep.documents) for sweep in sweeps
    }


def _beside_control(
    sweeps: Sequence[MeasuredSweep], controls: Sequence[MeasuredSweep], rows: Sequence[Row], warnings: list[str]
) -> list[Row]:
    """The rows with what the method's decisions are worth."""
    own, other, first = _by_seed(sweeps), _by_seed(controls), sweeps[0]
    apart = [savings_apart(own[seed], other[seed]) for seed in own if seed in other]
    furthest = max((pair for seed in apart for pair in seed.items()), key=lambda pair: abs(pair[1]), default=(0.0, 0.0))
    if abs(furthest[1]) > TOLERANCE:
        warnings.append(
            f"{first.method} on {first.task}: asked for {furthest[0]:.0%}, the same model with the decisions of other "
            f"tokens saves {100 * furthest[1]:+.1f} points of net FLOPs beside the method's own: tokens of the "
            f"calibration text decide unlike those of the answers, or the control's answers have another length. "
            f"Scores are compared where both save the same."
        )
    return with_control(rows, own, other, first.curves)


def _dial_warnings(sweeps: Sequence[MeasuredSweep], rows: Sequence[Row], axis: Axis, phase: MatchPhase) -> list[str]:
    first, some = sweeps[0], next(sweep for sweep in sweeps if sweep.points)
    curve = next(iter(first.curves.values())) if axis == "time" else None
    measured = {sweep.seed: sweep.points for sweep in sweeps}
    metric = next(iter(some.points[0].scores))
    said = dial_warnings(MethodSpec.parse(first.method), first.task, metric, measured, axis, curve, phase)
    if not any(row.phase == phase for row in rows):
        said.append(f"{first.task}: no token was fed one by one, so that there is no table by {phase}.")
    return said


def _best_on_validation(
    by_target: Mapping[float | None, Sequence[MeasuredSweep]], tables: Mapping[float | None, Sequence[Row]]
) -> list[Row]:
    """Of several targets, for each level the rows of the one that scores best there on validation documents; of those
    that score alike the first of `tables`.
    """
    validated: dict[float | None, dict[_Place, float]] = {}
    for target in tables:
        sweeps = [sweep for sweep in by_target[target] if sweep.split == "validation"]
        rows = _rows(sweeps) if any(sweep.points for sweep in sweeps) else []
        validated[target] = {_place(row): row.score for row in rows if row.score is not None}
    tested = {target: {_place(row): row for row in rows} for target, rows in tables.items()}
    chosen = []
    for place in dict.fromkeys(place for rows in tested.values() for place in rows):
        sign = -1.0 if metric_of(place[0]).better == "lower" else 1.0
        scores = {target: sign * found[place] for target, found in validated.items() if place in found}
        known = [target for target, rows in tested.items() if place in rows]
        best = max((target for target in known if target in scores), key=scores.__getitem__, default=known[0])
        chosen.append(tested[best][place].but(target=best))
    return chosen


_Place = tuple[str, str, str, float, str | None]


def _place(row: Row) -> _Place:
    """Where a row stands in the tables of its method and task."""
    return row.metric, row.axis, row.phase, row.level, row.timing


def _compact(values: Sequence[float]) -> str | list[float]:
    binary = all(value in (0.0, 1.0) for value in values)
    return "".join(str(int(value)) for value in values) if binary else list(values)
