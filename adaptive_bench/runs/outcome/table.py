"""The table of a run: rows in the order of methods and tasks, and what a reader should know about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.model.text_decisions import duplicate_warnings
from adaptive_bench.runs.outcome.alike import SameDocuments
from adaptive_bench.runs.outcome.measured import priced_alike, sweep_of
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.shuffled import without_control
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.records import FILE
from adaptive_bench.tables.outcome import answers_file, answers_of, rows_of, version_warnings
from adaptive_bench.tables.rows import Row


@dataclass(frozen=True)
class Outcome:
    """What a run's records come to.

    Attributes:
        rows: Of everything that is measured.
        warnings: What is wrong with them.
        answers: Plain values for `answers.json`: `tables.outcome.answers_of` each finished sweep of test documents.
    """

    rows: list[Row]
    warnings: list[str]
    answers: dict[str, Any]


def outcome_of(whole: Plan) -> Outcome:
    """Everything that is read off records, group by group."""
    return _Pass(whole).outcome()


@dataclass
class _Group:
    """What is found in the sweeps of one method on one task.

    Attributes:
        answers, behaviours: By name of the sweep's record.
    """

    rows: list[Row] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    behaviours: dict[str, str] = field(default_factory=dict)


class _Pass:
    """Takes the groups of a plan one after the other."""

    def __init__(self, whole: Plan) -> None:
        self.whole, self.same_documents = whole, SameDocuments()

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
        warnings += _damaged(whole)
        behaviours = {name: digest for group in groups.values() for name, digest in group.behaviours.items()}
        answers = {name: entry for group in groups.values() for name, entry in group.answers.items()}
        return Outcome(
            rows,
            list(dict.fromkeys([*warnings, *version_warnings(rows), *_duplicate_warnings(whole, behaviours)])),
            answers_file([answers[sweep.folder.name] for sweep in whole.sweeps if sweep.folder.name in answers]),
        )

    def _group(self, sweeps: Sequence[DialEvaluation]) -> _Group:
        group = _Group()
        points, group.warnings = priced_alike(sweeps)
        measured = []
        for sweep, found in zip(sweeps, points, strict=True):
            for evaluation in found.values():
                if (left := (evaluation.data or {}).get("overlong")) and sweep.split == "test":
                    group.warnings.append(
                        f"{len(left)} of {len(left) + evaluation.docs} documents of {sweep.task} are too long for the "
                        f"model's context and were left out, for every method alike (--skip-overlong)."
                    )
                self.same_documents.check(sweep, evaluation)
            measured.append(sweep_of(sweep, found, [sweep.record.samples(asked) for asked in found]))
        config = sweeps[0].config
        group.rows, warnings = rows_of(measured, config.match_on, config.match_phase)
        group.warnings += warnings
        for sweep, one in zip(sweeps, measured, strict=True):
            if sweep.split == "test" and not sweep.variant and one.points:
                group.answers[sweep.folder.name] = answers_of(one)
                group.warnings += _calibration_warnings(sweep)
            if (about := sweep.record.read("behaviour")) is not None:
                group.behaviours[sweep.folder.name] = about["sha256"]
        return group


def _damaged(whole: Plan) -> list[str]:
    """Records that cannot be read: what they said is left out of the table."""
    records = [*(training.record for training in whole.trainings), *(sweep.record for sweep in whole.sweeps)]
    found = [str(record.folder / FILE) for record in records if record.is_damaged]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return [f"{found[0]}{more} cannot be read: the table is made without it."] if found else []


def _duplicate_warnings(whole: Plan, behaviours: Mapping[str, str]) -> list[str]:
    """Specs of the run that do exactly the same: one of them, or the method, is not what its name says."""
    by_seed: dict[int, dict[MethodSpec, str]] = {seed: {} for seed in whole.config.seeds}
    for sweep in whole.sweeps:
        if sweep.folder.name in behaviours:
            by_seed[sweep.training.seed][sweep.spec] = behaviours[sweep.folder.name]
    return [text for of_seed in by_seed.values() for text in duplicate_warnings(of_seed)]


def _calibration_warnings(sweep: DialEvaluation) -> list[str]:
    """Dial values whose thresholds skip far more or less than asked for. Measured savings are right all the same."""
    calibration = sweep.record.read("calibration") or {"dials": []}
    off = [entry for entry in calibration["dials"] if entry["status"] == "fail"]
    if not off:
        return []
    most = max(off, key=lambda entry: abs(entry["requested"] - entry["realised"]))
    return [
        f"{sweep.spec} on {sweep.task}, seed {sweep.training.seed}: at {len(off)} of {len(calibration['dials'])} dial "
        f"values thresholds skip more or less of the calibration text than they were calibrated for, farthest off "
        f"{most['realised']:.0%} in place of {most['requested']:.0%}. Savings in the table are measured, not requested."
    ]
