"""The table of a run: rows in the order of methods and tasks, and what a reader should know about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.metric import metric_of
from adaptive_bench.model.behavioural_duplicates import duplicate_warnings
from adaptive_bench.runs.outcome.about_training import about_training
from adaptive_bench.runs.outcome.alike import SameDocuments, made_with
from adaptive_bench.runs.outcome.answers import as_file, entry
from adaptive_bench.runs.outcome.projection import projected
from adaptive_bench.runs.planning.conditions import conditions
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.shuffled import without_control
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluations import Evaluation, Sample
from adaptive_bench.store.files import forget, read_once
from adaptive_bench.tables.made_with import environments
from adaptive_bench.tables.recomputed import check_point
from adaptive_bench.tables.rows import Row, dial_warnings, table_rows
from adaptive_bench.tables.shuffled import TOLERANCE, SeedPoints, savings_apart, with_control

Evaluations = Mapping[int, list[Evaluation]]  # by seed
Check = Callable[[DialEvaluation, Evaluation, Sequence[Sample]], None]


@dataclass(frozen=True)
class Outcome:
    """What a run's records come to.

    Attributes:
        rows: Of everything that is measured.
        warnings: What is wrong with them.
        answers: Plain values for `answers.json` (see `answers.entry`), one for each finished sweep of test documents.
    """

    rows: list[Row]
    warnings: list[str]
    answers: dict[str, Any]


def outcome_of(whole: Plan, check: Check | None = None) -> Outcome:
    """Everything that is read off records: one pass over them, group by group.

    Args:
        check: Is shown each measured point with its documents, and raises where it does not hold.
    """
    with read_once():
        return _Pass(whole, check).outcome()


@dataclass
class _Group:
    """What is found in the sweeps of one method on one task.

    Attributes:
        answers: By name of the sweep's record.
        behaviours, damaged: By name of the record, in the order of the plan.
    """

    rows: list[Row] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    behaviours: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, list[str]] = field(default_factory=dict)


class _Pass:
    """Takes the groups of a plan one after the other, so that the files of each are read once."""

    def __init__(self, whole: Plan, check: Check | None) -> None:
        self.whole = whole
        self.same_documents, self.check = SameDocuments(), check

    def outcome(self) -> Outcome:
        whole = self.whole
        grouped: defaultdict[tuple[str, str], list[DialEvaluation]] = defaultdict(list)
        for sweep in whole.sweeps:
            grouped[str(sweep.spec), sweep.task].append(sweep)
        names = [find_task(name).name for name in whole.config.tasks]
        wanted = [(str(MethodSpec.parse(text)), name) for text in whole.config.methods for name in names]
        groups = {place: self._group(grouped[place]) for place in wanted if grouped[place]}
        rows = [row for place in wanted if place in groups for row in groups[place].rows]
        warnings = [text for place in wanted if place in groups for text in groups[place].warnings]
        if rows and not whole.config.train.steps:
            warnings.append(
                "Nothing was trained (0 steps): models are evaluated as they are, with initial values of whatever "
                "parameters a method adds."
            )
        warnings += without_control(whole.config) if rows else []
        damaged = {name: files for group in groups.values() for name, files in group.damaged.items()}
        warnings += _damaged(whole, damaged)
        behaviours = {name: digest for group in groups.values() for name, digest in group.behaviours.items()}
        answers = {name: entry for group in groups.values() for name, entry in group.answers.items()}
        return Outcome(
            rows,
            list(dict.fromkeys([*warnings, *_version_warnings(rows), *_duplicate_warnings(whole, behaviours)])),
            as_file([answers[sweep.folder.name] for sweep in whole.sweeps if sweep.folder.name in answers]),
        )

    def _group(self, sweeps: Sequence[DialEvaluation]) -> _Group:
        found = self._look(sweeps)
        for sweep in sweeps:  # nobody asks for them again
            forget(sweep.folder)
        return found

    def _look(self, sweeps: Sequence[DialEvaluation]) -> _Group:
        group = _Group()
        by_target: defaultdict[float | None, list[DialEvaluation]] = defaultdict(list)
        for sweep in sweeps:
            by_target[sweep.training.target].append(sweep)
        tables = {}
        # Not in the order of the plan, which another one has that is made of the same records.
        for target, of_target in sorted(by_target.items(), key=lambda one: -1.0 if one[0] is None else one[0]):
            tests = [sweep for sweep in of_target if sweep.split == "test"]
            found = _measured([sweep for sweep in tests if not sweep.variant])
            if not any(found.points.values()):
                continue
            tables[target] = _rows(found, self._check, group)
            if controls := [sweep for sweep in tests if sweep.variant == "shuffled"]:
                tables[target] = _beside_control(found, _measured(controls), tables[target], self._check, group)
            group.warnings += [*found.unprojected, *_warnings(found, tables[target])]
            group.answers |= {
                sweep.folder.name: entry(sweep, found.points[seed], found.priced[seed], found.samples[seed])
                for seed, sweep in found.sweeps.items()
                if found.points[seed]
            }
        if len(tables) == 1:
            group.rows += next(iter(tables.values()))
        elif tables:
            group.rows += _best_on_validation(by_target, tables, self._check, group)
        for sweep in sweeps:
            for record in (sweep.training.record, sweep.record):
                if damaged := record.damaged():
                    group.damaged[record.folder.name] = damaged
            if (about := sweep.record.read("behaviour.json")) is not None:
                group.behaviours[sweep.folder.name] = about["sha256"]
        return group

    def _check(self, found: _Measured, group: _Group) -> None:
        """Scores are what the documents make up, and the documents those of everybody else."""
        for seed, sweep in found.sweeps.items():
            for evaluation, samples in zip(found.points[seed].values(), found.samples[seed], strict=True):
                check_point(evaluation, samples, sweep.folder)
                if (left := (evaluation.data or {}).get("overlong")) and sweep.split == "test":
                    group.warnings.append(
                        f"{len(left)} of {len(left) + evaluation.docs} documents of {sweep.task} are too long for the "
                        f"model's context and were left out, for every method alike (--skip-overlong)."
                    )
                self.same_documents.check(sweep, evaluation)
                if self.check is not None:
                    self.check(sweep, evaluation, samples)


@dataclass(frozen=True)
class _Measured:
    """What the sweeps of one spec, trained towards one target, have measured on one task, by seed.

    Attributes:
        points: By the saving each was asked for.
        priced: The same points, with their projection.
        samples: The documents of each point.
        unprojected: Why there is no projection, if there is none.
    """

    sweeps: Mapping[int, DialEvaluation]
    points: Mapping[int, Mapping[float, Evaluation]]
    priced: Evaluations
    samples: Mapping[int, list[list[Sample]]]
    unprojected: list[str]

    @property
    def by_seed(self) -> dict[int, SeedPoints]:
        """All of it for each seed."""
        return {
            seed: SeedPoints(list(points), self.priced[seed], self.samples[seed])
            for seed, points in self.points.items()
        }


def _measured(sweeps: Sequence[DialEvaluation]) -> _Measured:
    points = {sweep.training.seed: sweep.finished() or {} for sweep in sweeps}
    first = sweeps[0]
    measured = {seed: list(found.values()) for seed, found in points.items()}
    priced, unprojected = projected(first.spec, measured, first.config.project_onto)
    samples = {
        sweep.training.seed: [sweep.record.samples(one) for one in points[sweep.training.seed]] for sweep in sweeps
    }
    return _Measured({sweep.training.seed: sweep for sweep in sweeps}, points, priced, samples, unprojected)


_CheckAll = Callable[[_Measured, _Group], None]


def _rows(found: _Measured, check: _CheckAll, group: _Group) -> list[Row]:
    """Rows of one spec, trained towards one target, on one task."""
    sweeps = list(found.sweeps.values())
    first = sweeps[0]
    some = next(one for done in found.points.values() for one in done.values())
    metrics = [metric for metric in find_task(first.task).metrics if metric in some.scores]
    check(found, group)
    rows = table_rows(
        first.spec,
        first.task,
        metrics,
        found.priced,
        first.levels,
        first.curves,
        about_training([sweep.training for sweep in sweeps]),
        found.samples,
        conditions(first, some),
    )
    # A seed without points was not "outside" a level: it is missing.
    partial = {} if all(found.points.values()) else {"status": "partial"}
    made, dial = made_with(sweeps), first.record.read("dial.json") or {}
    return [row.but(made_with=made, eligible=dial.get("eligible"), **partial) for row in rows]


def _beside_control(
    found: _Measured, control: _Measured, rows: Sequence[Row], check: _CheckAll, group: _Group
) -> list[Row]:
    """The rows with what the method's decisions are worth."""
    check(control, group)
    own, other = found.by_seed, control.by_seed
    first = next(iter(found.sweeps.values()))
    apart = [savings_apart(own[seed], other[seed]) for seed in own if seed in other]
    furthest = max((pair for seed in apart for pair in seed.items()), key=lambda pair: abs(pair[1]), default=(0.0, 0.0))
    if abs(furthest[1]) > TOLERANCE:
        group.warnings.append(
            f"{first.spec} on {first.task}: asked for {furthest[0]:.0%}, the same model with the decisions of other "
            f"tokens saves {100 * furthest[1]:+.1f} points of net FLOPs beside the method's own: tokens of the "
            f"calibration text decide unlike those of the answers, or the control's answers have another length. "
            f"Scores are compared where both save the same."
        )
    return with_control(rows, own, other, first.curves)


def _damaged(whole: Plan, known: Mapping[str, Sequence[str]]) -> list[str]:
    """Files of records that say something else than was written; what they said is left out of the table."""
    asked = {folder for sweep in whole.sweeps for folder in (sweep.folder, sweep.training.folder)}
    records = [*(training.record for training in whole.trainings), *(sweep.record for sweep in whole.sweeps)]
    found = [
        str(record.folder / name)
        for record in records
        for name in (known.get(record.folder.name, ()) if record.folder in asked else record.damaged())
    ]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return [f"{found[0]}{more} changed since it was written: the table is made without it."] if found else []


def _version_warnings(rows: Sequence[Row]) -> list[str]:
    found = environments(row.made_with for row in rows)
    return [
        "Not everything in this table was made with the same versions on the same device (`made_with` in table.json "
        "says which): nearly as likely answers may differ by rounding, and trainings end at other weights."
    ] * (len(found) > 1)


def _best_on_validation(
    by_target: Mapping[float | None, Sequence[DialEvaluation]],
    tables: Mapping[float | None, Sequence[Row]],
    check: _CheckAll,
    group: _Group,
) -> list[Row]:
    """Of several targets, for each level the rows of the one that scores best there on validation documents; of those
    that score alike the first of `tables`.
    """
    validated: dict[float | None, dict[_Place, float]] = {}
    for target in tables:
        sweeps = [sweep for sweep in by_target[target] if sweep.split == "validation"]
        found = _measured(sweeps) if sweeps else None
        rows = _rows(found, check, group) if found is not None and any(found.points.values()) else []
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


def _warnings(found: _Measured, rows: Sequence[Row]) -> list[str]:
    first = next(iter(found.sweeps.values()))
    measured = {seed: list(points.values()) for seed, points in found.points.items()}
    axis, phase = first.config.match_on, first.config.match_phase
    said = dial_warnings(first.spec, first.task, first.metric, measured, axis, first.matched_curve, phase)
    if not any(row.phase == phase for row in rows):
        said.append(f"{first.task}: no token was fed one by one, so that there is no table by {phase}.")
    return said + [text for sweep in found.sweeps.values() for text in _calibration_warnings(sweep)]


def _duplicate_warnings(whole: Plan, behaviours: Mapping[str, str]) -> list[str]:
    """Specs of the run that do exactly the same: one of them, or the method, is not what its name says."""
    by_seed: dict[int, dict[MethodSpec, str]] = {seed: {} for seed in whole.config.seeds}
    for sweep in whole.sweeps:
        if sweep.folder.name in behaviours:
            by_seed[sweep.training.seed][sweep.spec] = behaviours[sweep.folder.name]
    return [text for of_seed in by_seed.values() for text in duplicate_warnings(of_seed)]


def _calibration_warnings(sweep: DialEvaluation) -> list[str]:
    """Dial values whose thresholds skip far more or less than asked for. Measured savings are right all the same."""
    calibration = sweep.record.read("calibration.json") or {"dials": []}
    off = [entry for entry in calibration["dials"] if entry["status"] == "fail"]
    if not off:
        return []
    most = max(off, key=lambda entry: abs(entry["requested"] - entry["realised"]))
    return [
        f"{sweep.spec} on {sweep.task}, seed {sweep.training.seed}: at {len(off)} of {len(calibration['dials'])} dial "
        f"values thresholds skip more or less of the calibration text than they were calibrated for, farthest off "
        f"{most['realised']:.0%} in place of {most['requested']:.0%}. Savings in the table are measured, not requested."
    ]
