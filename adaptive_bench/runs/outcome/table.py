"""The table of a run: rows in the order of methods and tasks, and what a reader should know about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.metric import metric_of
from adaptive_bench.model.behavioural_duplicates import duplicate_warnings
from adaptive_bench.runs.outcome.alike import SameDocuments, made_with
from adaptive_bench.runs.outcome.projection import projected
from adaptive_bench.runs.planning.cells import Cell, Sweep
from adaptive_bench.runs.planning.conditions import conditions
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluations import Evaluation, Sample
from adaptive_bench.tables.made_with import environments
from adaptive_bench.tables.recomputed import check_point
from adaptive_bench.tables.rows import About, Row, dial_warnings, table_rows

Evaluations = Mapping[int, list[Evaluation]]  # by seed


def make_table(whole: Plan) -> tuple[list[Row], list[str]]:
    """Rows of everything that is measured, and what is wrong with them."""
    rows: list[Row] = []
    warnings: list[str] = []
    same_documents = SameDocuments()
    grouped: defaultdict[tuple[str, str], list[Sweep]] = defaultdict(list)
    for sweep in whole.sweeps:
        grouped[str(sweep.spec), sweep.task].append(sweep)
    for text in whole.config.methods:
        for name in whole.config.tasks:
            sweeps = grouped[str(MethodSpec.parse(text)), find_task(name).name]
            by_target = {
                target: [sweep for sweep in sweeps if sweep.cell.target == target]
                for target in dict.fromkeys(sweep.cell.target for sweep in sweeps)
            }
            tables = {}
            for target, of_target in by_target.items():
                tests = [sweep for sweep in of_target if sweep.split == "test"]
                points = _finished(tests)
                measured = {seed: list(found.values()) for seed, found in points.items()}
                if not any(measured.values()):
                    continue
                tables[target], unprojected = _rows(tests, points, same_documents)
                warnings += [*unprojected, *_warnings(tests, measured, tables[target])]
            if len(tables) == 1:
                rows += next(iter(tables.values()))
            elif tables:
                rows += _best_on_validation(by_target, tables, same_documents)
    if rows and not whole.config.train.steps:
        warnings.append(
            "Nothing was trained (0 steps): models are evaluated as they are, with initial values of whatever "
            "parameters a method adds."
        )
    warnings += _damaged(whole)
    return rows, list(dict.fromkeys([*warnings, *_version_warnings(rows), *_duplicate_warnings(whole)]))


def about_training(cells: Sequence[Cell]) -> About:
    """What the trainings of a method cost, those they start from included, and what they aimed at; means over seeds."""
    costs = [cost for cell in cells if (cost := _cost(cell)) is not None]
    about = About()
    if len(costs) == len(cells):
        about = About(
            parameters_added=round(fmean(cost["parameters_added"] for cost in costs)),
            train_tokens=round(fmean(cost["tokens"] for cost in costs)),
            train_flops=fmean(cost["flops"] for cost in costs),
        )
    targets = [target for cell in cells if (target := cell.record.read("target.json")) is not None]
    if targets:
        reached = {axis: fmean(target["priced"][axis] for target in targets) for axis in targets[0]["priced"]}
        axis, saving = targets[0]["axis"], targets[0]["saving"]
        near = abs(reached[axis] - saving) <= _NEAR  # pricing stops close to the target; else the dial ended before it
        about["trained_for"] = (
            reached | {"claimed": fmean(target["tokens"] for target in targets)} | ({axis: saving} if near else {})
        )
    return about


_NEAR = 0.01


def _cost(cell: Cell) -> dict[str, float] | None:
    """Tokens and FLOPs of a training and of those it starts from; parameters of its own method."""
    cost: dict[str, float] | None = cell.record.read("cost.json")
    data = cell.record.read("data.json")
    if cost is not None and data is not None and data.get("tokens", cost["tokens"]) != cost["tokens"]:
        raise EnvironmentProblem(
            f"A training costs the tokens of its data, but in {str(cell.folder)!r} cost.json has {cost['tokens']} and "
            f"data.json {data['tokens']}. The record was changed: remove that folder and give the same command again."
        )
    if cost is None or cell.base is None:
        return cost
    base = _cost(cell.base)
    return None if base is None else cost | {key: cost[key] + base[key] for key in ("tokens", "flops")}


def _finished(sweeps: Sequence[Sweep]) -> dict[int, dict[float, Evaluation]]:
    """By seed the measured points, by the saving each was asked for."""
    return {sweep.cell.seed: sweep.finished() or {} for sweep in sweeps}


def _rows(
    sweeps: Sequence[Sweep], points: Mapping[int, Mapping[float, Evaluation]], same_documents: SameDocuments
) -> tuple[list[Row], list[str]]:
    """Rows of one spec, trained towards one target, on one task, and why they have no projection if they have none."""
    first = sweeps[0]
    measured = {seed: list(found.values()) for seed, found in points.items()}
    some = next(one for done in measured.values() for one in done)
    metrics = [metric for metric in find_task(first.task).metrics if metric in some.scores]
    priced, unprojected = projected(first.spec, measured, first.config.project_onto)
    about = about_training([sweep.cell for sweep in sweeps])
    samples: dict[int, list[list[Sample]]] = {}
    for sweep in sweeps:
        of_seed = samples.setdefault(sweep.cell.seed, [])
        for saving, evaluation in points[sweep.cell.seed].items():
            of_seed.append(sweep.record.samples(saving))
            check_point(evaluation, of_seed[-1], sweep.folder)
            same_documents.check(sweep, evaluation)
    same, made = conditions(first, some), made_with(sweeps)
    found = table_rows(first.spec, first.task, metrics, priced, first.levels, first.curves, about, samples, same)
    if not all(measured.values()):
        # A seed without points was not "outside" a level: it is missing.
        found = [replace(row, status="partial") for row in found]
    return [replace(row, made_with=made) for row in found], unprojected


def _damaged(whole: Plan) -> list[str]:
    """Files of records that say something else than was written; what they said is left out of the table."""
    records = [*(cell.record for cell in whole.cells), *(sweep.record for sweep in whole.sweeps)]
    found = [str(record.folder / name) for record in records for name in record.damaged()]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return [f"{found[0]}{more} changed since it was written: the table is made without it."] if found else []


def _version_warnings(rows: Sequence[Row]) -> list[str]:
    found = environments(row.made_with for row in rows)
    return [
        "Not everything in this table was made with the same versions on the same device (`made_with` in table.json "
        "says which): nearly as likely answers may differ by rounding, and trainings end at other weights."
    ] * (len(found) > 1)


def _best_on_validation(
    by_target: Mapping[float | None, Sequence[Sweep]],
    tables: Mapping[float | None, Sequence[Row]],
    same_documents: SameDocuments,
) -> list[Row]:
    """Of several targets, for each level the rows of the one that scores best there on validation documents."""
    validated: dict[float | None, dict[_Place, float]] = {}
    for target in tables:
        sweeps = [sweep for sweep in by_target[target] if sweep.split == "validation"]
        points = _finished(sweeps)
        rows = _rows(sweeps, points, same_documents)[0] if any(points.values()) else []
        validated[target] = {_place(row): row.score for row in rows if row.score is not None}
    tested = {target: {_place(row): row for row in rows} for target, rows in tables.items()}
    chosen = []
    for place in dict.fromkeys(place for rows in tested.values() for place in rows):
        sign = -1.0 if metric_of(place[0]).better == "lower" else 1.0
        scores = {target: sign * found[place] for target, found in validated.items() if place in found}
        known = [target for target, rows in tested.items() if place in rows]
        best = max((target for target in known if target in scores), key=scores.__getitem__, default=known[0])
        chosen.append(replace(tested[best][place], target=best))
    return chosen


_Place = tuple[str, str, str, float, str | None]


def _place(row: Row) -> _Place:
    """Where a row stands in the tables of its method and task."""
    return row.metric, row.axis, row.phase, row.level, row.timing


def _warnings(sweeps: Sequence[Sweep], measured: Evaluations, rows: Sequence[Row]) -> list[str]:
    first = sweeps[0]
    axis, phase = first.config.match_on, first.config.match_phase
    said = dial_warnings(first.spec, first.task, first.metric, measured, axis, first.matched_curve, phase)
    if not any(row.phase == phase for row in rows):
        said.append(f"{first.task}: no token was fed one by one, so that there is no table by {phase}.")
    return said + [text for sweep in sweeps for text in _calibration_warnings(sweep)]


def _duplicate_warnings(whole: Plan) -> list[str]:
    """Specs of the run that do exactly the same: one of them, or the method, is not what its name says."""
    warnings = []
    for seed in whole.config.seeds:
        found = {
            sweep.spec: about["sha256"]
            for sweep in whole.sweeps
            if sweep.cell.seed == seed and (about := sweep.record.read("behaviour.json")) is not None
        }
        warnings += duplicate_warnings(found)
    return warnings


def _calibration_warnings(sweep: Sweep) -> list[str]:
    """Dial values whose thresholds skip far more or less than asked for. Measured savings are right all the same."""
    calibration = sweep.record.read("calibration.json") or {"dials": []}
    off = [entry for entry in calibration["dials"] if entry["status"] == "fail"]
    return [
        f"{sweep.spec}, seed {sweep.cell.seed}: thresholds calibrated for {entry['requested']:.0%} skipped tokens skip "
        f"{entry['realised']:.0%} of the calibration text. Savings in the table are measured, not requested."
        for entry in off
    ]
