"""Makes the table of a run from its records: rows in the order of methods and tasks, and warnings about them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.model.text_decisions import duplicate_warnings
from adaptive_bench.runs.conditions import conditions
from adaptive_bench.runs.projection import projected
from adaptive_bench.runs.run_plan import Plan
from adaptive_bench.runs.training_targets import without_control
from adaptive_bench.runs.work_units import DialEvaluation, TrainingRun
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.entry_files import Measurements, Text
from adaptive_bench.store.evaluation import Evaluation, Sample
from adaptive_bench.store.measured import Documents, MeasuredPoint, MeasuredSweep, MeasuredTraining
from adaptive_bench.store.records import FILE
from adaptive_bench.tables.comparability import made_with
from adaptive_bench.tables.outcome import answers_file, answers_of, rows_of, version_warnings
from adaptive_bench.tables.rows import Row

_CONTENTS = {"documents_sha256": "documents", "gold_sha256": "right answers"}
SHOWN_DOCUMENTS = 6  # documents of each point whose texts an entry shows
LONGEST_TEXT = 1000  # characters
Points = Mapping[float, Evaluation]  # by the saving that was asked for


class SameDocuments:
    """Checks the points of a table one by one, and refuses a point that was asked other documents than earlier ones."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str, str], tuple[str, DialEvaluation]] = {}

    def check(self, sweep: DialEvaluation, evaluation: Evaluation) -> None:
        """Compare the documents of a point with those of the first one of its task.

        Raises:
            EnvironmentProblem: The documents, or their right answers, differ.
        """
        data: Mapping[str, Any] = evaluation.data or {}  # records of earlier versions have no digest of right answers
        for key, what in _CONTENTS.items():
            if (digest := data.get(key)) is None:
                continue
            known, first = self._first.setdefault((sweep.task, sweep.split, key), (digest, sweep))
            if known != digest:
                raise EnvironmentProblem(
                    f"Methods are compared on the same documents, but the {what} of {sweep.task!r} in the record "
                    f"{str(sweep.folder)!r} ({sweep}) are not those in {str(first.folder)!r} ({first}): the data "
                    f"changed between the two. Remove the older folder and give the same command again: it "
                    f"is measured anew."
                )


def training_of(work: TrainingRun) -> MeasuredTraining:
    """A training as its record describes it, without its log."""
    record = work.record
    return MeasuredTraining(
        key=work.folder.name,
        method=str(work.spec),
        seed=work.seed,
        base=None if work.base is None else training_of(work.base),
        cost=record.read("cost"),
        target=record.read("target"),
    )


def with_projections(sweeps: Sequence[DialEvaluation]) -> tuple[list[Points], list[str]]:
    """The points of one spec's sweeps with their projections, and the reasons why any have none."""
    found = [sweep.finished() or {} for sweep in sweeps]
    first = sweeps[0]
    measured = {place: list(points.values()) for place, points in enumerate(found)}
    priced, unprojected = projected(first.spec, measured, first.config.project_onto)
    return [dict(zip(points, priced[place], strict=True)) for place, points in enumerate(found)], unprojected


def sweep_of(work: DialEvaluation, points: Points, samples: Sequence[Sequence[Sample]]) -> MeasuredSweep:
    """One sweep in plain values.

    Args:
        points: The sweep's points, with their projections.
        samples: The documents of each point.

    Raises:
        EnvironmentProblem: Documents of a point are missing.
    """
    for one, documents in zip(points.values(), samples, strict=True):
        if one.docs != len(documents):
            raise EnvironmentProblem(
                f"A measured point has what every document scored, but in {str(work.folder)!r} at the dial value "
                f"{one.dial:g} there are {len(documents)} of {one.docs} documents. Remove that folder and give the "
                f"same `adaptive-bench run` again: it is measured anew."
            )
    some = next(iter(points.values()), None)
    metrics = find_task(work.task).metrics
    records = [record.read("env") or {} for record in (work.training.record, work.record)]
    return MeasuredSweep(
        method=str(work.spec),
        task=work.task,
        seed=work.training.seed,
        training=training_of(work.training),
        target=None if work.training.has_single_target else work.training.target,
        split=work.split,
        variant=work.variant,
        levels=work.levels,
        conditions={} if some is None else asdict(conditions(work, some)),
        made_with=made_with(one for about in records for one in (*about.get("before", ()), about)),
        eligible=(work.record.read("dial") or {}).get("eligible"),
        documents_sha256=None if some is None else (some.data or {}).get("documents_sha256"),
        points=[MeasuredPoint.of(asked, one, metrics) for asked, one in points.items()],
        documents=[Documents.of(one) for one in samples],
        curves=work.curves,
    )


def measured_run(whole: Plan) -> Measurements:
    """Everything that a finished run has measured, as an entry holds it.

    Raises:
        EnvironmentProblem: A record is damaged, or measured points are missing.
    """
    groups: dict[tuple[str, str], list[DialEvaluation]] = {}
    for work in whole.sweeps:
        groups.setdefault((str(work.spec), work.task), []).append(work)
    found: dict[Path, tuple[MeasuredSweep, list[list[Text]]]] = {}
    for works in groups.values():
        for work, points in zip(works, with_projections(works)[0], strict=True):
            if not points:
                raise EnvironmentProblem(
                    f"An entry is made from a complete run, but nothing of `{work}` is on disk. Give the run's command "
                    f"again."
                )
            samples = [work.record.samples(asked) for asked in points]
            shown = work.split == "test" and not work.variant
            written = [[_text(one) for one in some[:SHOWN_DOCUMENTS]] for some in samples] if shown else []
            found[work.folder] = sweep_of(work, points, samples), written
    ordered = [found[work.folder] for work in whole.sweeps]
    texts = {(place, number): some for place, (_, one) in enumerate(ordered) for number, some in enumerate(one)}
    return Measurements([sweep for sweep, _ in ordered], [_logged(work) for work in whole.trainings], texts)


def _text(sample: Sample) -> Text:
    return Text(sample.doc, str(sample.target)[:LONGEST_TEXT], str(sample.output)[:LONGEST_TEXT], sample.correct)


def _logged(work: TrainingRun) -> MeasuredTraining:
    """A training with its log and further facts for readers."""
    record = work.record
    log = work.folder / "train.jsonl"
    lines = [json.loads(line) for line in log.read_bytes().splitlines()] if log.is_file() else []
    data, timing = (record.read(section) or {} for section in ("data", "timing"))
    facts = {
        "learning_rate": work.content.get("method_learning_rate"),
        "order_sha256": data.get("order_sha256"),
        "seconds": timing.get("train_s"),
        "made_with": made_with([record.read("env") or {}]),
    }
    steps, losses = ([line[name] for line in lines] for name in ("step", "loss"))
    return replace(training_of(work), facts=facts, steps=steps, losses=losses)


@dataclass(frozen=True)
class Outcome:
    """The table of a run, computed from its records.

    Attributes:
        rows: Rows of everything that is measured.
        warnings: What readers of the rows should know.
        answers: Plain values for `answers.json`: `tables.outcome.answers_of` each finished sweep of test documents.
    """

    rows: list[Row]
    warnings: list[str]
    answers: dict[str, Any]


def outcome_of(whole: Plan) -> Outcome:
    """Compute a run's table from its records, one group of sweeps after the other."""
    return _TableBuilder(whole).outcome()


@dataclass
class _Group:
    """What the sweeps of one method on one task contribute.

    Attributes:
        answers, behaviours: By the name of the sweep's record.
    """

    rows: list[Row] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    behaviours: dict[str, str] = field(default_factory=dict)


class _TableBuilder:
    """Goes through the groups of a plan once, one after the other."""

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
        points, group.warnings = with_projections(sweeps)
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
    """A warning about records that cannot be read, whose contents are left out of the table."""
    records = [*(training.record for training in whole.trainings), *(sweep.record for sweep in whole.sweeps)]
    found = [str(record.folder / FILE) for record in records if record.is_damaged]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return [f"{found[0]}{more} cannot be read: the table is made without it."] if found else []


def _duplicate_warnings(whole: Plan, behaviours: Mapping[str, str]) -> list[str]:
    """Warnings about specs of the run that behave identically, so that one of them is not what its name says."""
    by_seed: dict[int, dict[MethodSpec, str]] = {seed: {} for seed in whole.config.seeds}
    for sweep in whole.sweeps:
        if sweep.folder.name in behaviours:
            by_seed[sweep.training.seed][sweep.spec] = behaviours[sweep.folder.name]
    return [text for of_seed in by_seed.values() for text in duplicate_warnings(of_seed)]


def _calibration_warnings(sweep: DialEvaluation) -> list[str]:
    """Warnings about dial values whose thresholds skip far more or less than asked for.

    The savings in the table are measured, so they are right all the same.
    """
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
