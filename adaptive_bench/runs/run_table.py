"""Makes the table of a run from its records: rows in the order of methods and tasks, and warnings about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.method import method_class
from adaptive_bench.runs.projection import projected
from adaptive_bench.runs.run_plan import Plan, target_axis, without_control
from adaptive_bench.runs.training_text import training_tasks
from adaptive_bench.runs.work_units import DialEvaluation, TrainingRun
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluation import Evaluation
from adaptive_bench.store.keys import USUAL, code_digest, code_of, key_of
from adaptive_bench.store.measured import MeasuredPoint, MeasuredSweep, MeasuredTraining, Measurements
from adaptive_bench.store.records import SCHEMA
from adaptive_bench.tables.comparability import Conditions, made_with
from adaptive_bench.tables.outcome import answers_file, answers_of, matched_rows
from adaptive_bench.tables.rows import Row

# Left out of the recipe's text: these do not apply to every method, do not change a result, or are added separately.
_NO_RECIPE = {"checkpoint_every", "method_learning_rates", "target", "parallel", "gradient_checkpointing"}
_CONTENTS = {"documents_sha256": "documents", "gold_sha256": "right answers"}
SHOWN_DOCUMENTS = 6  # documents of each point whose texts an entry shows
Points = Mapping[float, Evaluation]  # by the saving that was asked for


def _check_same_documents(
    sweep: DialEvaluation, evaluation: Evaluation, seen: dict[tuple[str, str, str], tuple[str, DialEvaluation]]
) -> None:
    """Compare the documents of a point with those of the first one of its task, which is added to `seen`."""
    for key, what in _CONTENTS.items():
        known, first = seen.setdefault((sweep.task, sweep.split, key), (evaluation.data[key], sweep))
        if known != evaluation.data[key]:
            raise EnvironmentProblem(
                f"Methods are compared on the same documents, but the {what} of {sweep.task!r} in the record "
                f"{str(sweep.folder)!r} ({sweep}) are not those in {str(first.folder)!r} ({first}): the data changed "
                f"between the two. Remove the older folder and give the same command again: it is measured anew."
            )


def conditions(sweep: DialEvaluation, evaluation: Evaluation) -> Conditions:
    """The conditions of a sweep's rows, by any evaluation of it; they tell the rows from those of other runs."""
    data, version = evaluation.data, evaluation.data["task_version"]
    definition = sweep.content.get("task_code")  # the part of the sweep's key that `training_text.task_inputs` makes
    return Conditions(
        model=model_name(sweep.config.model),
        backbone=sweep.training.content["backbone"],
        recipe=recipe_text(sweep.config),
        task_version=None if version is None else str(version),
        documents=evaluation.docs,
        shots=evaluation.num_fewshot,
        asked=data["prompts_sha256"][:16],
        contents=data["documents_sha256"][:16],
        definition=None if definition is None else key_of(definition),
    )


def model_name(model: str) -> str:
    """The name of a model for readers: a hub id or registered name unchanged, or the last part of a folder's path."""
    folder = Path(model).expanduser()  # a path counts as a folder even if it no longer exists
    is_folder = folder.is_dir() or folder.is_absolute() or model.startswith((".", "~"))
    return folder.resolve().name if is_folder else model


def recipe_text(config: RunConfig) -> str:
    """The settings by which every method of a run is trained and calibrated, separated by commas."""
    train, measuring = config.train, config.evaluation
    settings: dict[str, Any] = {"steps": train.steps}
    if train.steps:
        settings |= train.model_dump(mode="json", exclude=_NO_RECIPE)
        settings |= {
            "target": f"{'each level' if train.target is None else f'{train.target:g}'} {target_axis(config)}",
            "trained_on": "+".join(task.name for task in training_tasks(config)),
        }
    settings |= {"chat_template": "yes"} if config.chat_template else {}
    settings |= measuring.model_dump(mode="json", include={"calibration_examples", "calibration", "calibration_text"})
    said = {name: value for name in USUAL if (value := getattr(measuring, name)) != USUAL[name]}
    # Texts of any length become a digest.
    digests = {name: key_of(said[name])[:8] for name in ("stop_strings", "system_prompt") if name in said}
    settings |= said | digests
    return ", ".join(f"{name} {_plain(value)}" for name, value in settings.items() if value is not None)


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return "/".join(map(_plain, value))
    if isinstance(value, dict):
        return "/".join(f"{name} {_plain(part)}" for name, part in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


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


def with_projections(sweep: DialEvaluation) -> tuple[Points, list[str]]:
    """The points of a sweep with their projections, and the reason why any have none."""
    points = sweep.finished() or {}
    found, unprojected = projected(sweep.spec, list(points.values()), sweep.config.project_onto)
    return dict(zip(points, found, strict=True)), unprojected


def sweep_of(work: DialEvaluation, points: Points, shown: int = 0) -> MeasuredSweep:
    """One sweep in plain values, with the texts of `shown` documents of each of its points."""
    metrics, measured = find_task(work.task).metrics, list[MeasuredPoint]()
    for asked, one in points.items():
        samples = work.record.samples(asked)
        if one.docs != len(samples):
            raise EnvironmentProblem(
                f"A measured point has what every document scored, but in {str(work.folder)!r} at the dial value "
                f"{one.dial:g} there are {len(samples)} of {one.docs} documents. Remove that folder and give the "
                f"same `adaptive-bench run` again: it is measured anew."
            )
        measured.append(MeasuredPoint.of(asked, one, metrics, samples, shown))
    some = next(iter(points.values()), None)
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
        documents_sha256=None if some is None else some.data["documents_sha256"],
        points=measured,
        curves=work.curves,
    )


def measured_run(whole: Plan) -> Measurements:
    """Everything that a finished run has measured, as an entry holds it."""
    found = []
    for work in whole.sweeps:
        points, _ = with_projections(work)
        if not points:
            raise EnvironmentProblem(
                f"An entry is made from a complete run, but nothing of `{work}` is on disk. Give the run's command "
                f"again."
            )
        found.append(sweep_of(work, points, SHOWN_DOCUMENTS if work.split == "test" and not work.variant else 0))
    return Measurements(found, [_logged(work) for work in whole.trainings])


def _logged(work: TrainingRun) -> MeasuredTraining:
    """A training with its log and further facts for readers."""
    record = work.record
    data, timing = (record.read(section) or {} for section in ("data", "timing"))
    facts = {
        "learning_rate": work.content.get("method_learning_rate"),
        "order_sha256": data.get("order_sha256"),
        "seconds": timing.get("train_s"),
        "made_with": made_with([record.read("env") or {}]),
    }
    log = record.losses()
    return replace(training_of(work), facts=facts, steps=[step for step, _ in log], losses=[loss for _, loss in log])


@dataclass(frozen=True)
class Outcome:
    """The table of a run, computed from its records."""

    rows: list[Row]
    warnings: list[str]
    answers: dict[str, Any]  # for `answers.json`: `tables.outcome.answers_of` each finished sweep of test documents


def outcome_of(whole: Plan) -> Outcome:
    """Compute a run's table from its records."""
    config, warnings = whole.config, list[str]()
    answers: dict[Path, dict[str, Any]] = {}  # by the folder of the sweep
    seen: dict[tuple[str, str, str], tuple[str, DialEvaluation]] = {}
    groups: dict[tuple[str, str], list[DialEvaluation]] = {}
    for sweep in whole.sweeps:
        groups.setdefault((str(sweep.spec), sweep.task), []).append(sweep)

    def measured(sweep: DialEvaluation) -> MeasuredSweep:
        points, unprojected = with_projections(sweep)
        warnings.extend([*unprojected, *_overlong_warnings(sweep, points)])
        # Before rows are made: methods that answered different documents must not be compared.
        for evaluation in points.values():
            _check_same_documents(sweep, evaluation, seen)
        found = sweep_of(sweep, points)
        if sweep.split == "test" and not sweep.variant and points:
            answers[sweep.folder] = answers_of(found)
        return found

    # A generator, since the document scores of a large run do not fit into memory.
    rows, said = matched_rows(
        (list(map(measured, some)) for some in groups.values()), config.match_on, config.match_phase
    )
    warnings += said
    if rows and not config.train.steps:
        warnings.append(
            "Nothing was trained (0 steps): models are evaluated as they are, with initial values of whatever "
            "parameters a method adds."
        )
    warnings += without_control(config) if rows else []
    swept = [answers[sweep.folder] for sweep in whole.sweeps if sweep.folder in answers]
    return Outcome(rows, list(dict.fromkeys(warnings)), answers_file(swept))


def _overlong_warnings(sweep: DialEvaluation, points: Points) -> list[str]:
    """Warnings about documents that were left out."""
    left = [(len(found), one.docs) for one in points.values() if (found := one.data.get("overlong"))]
    return [
        f"{out} of {out + asked} documents of {sweep.task} are too long for the model's context and were left out, for "
        f"every method alike (--skip-overlong)."
        for out, asked in left
        if sweep.split == "test"
    ]


def method_facts(whole: Plan) -> dict[str, Any]:
    """Plain values for `methods.json`: by spec,

    code: Digest of the code that trained and evaluated the method.
    variant: The spec without the numbers that `tune` searches: the method, whatever it was tuned to.
    """
    facts = {
        spec: {"code": recorded_code(whole, spec) or code_of(spec.name), "variant": str(_untuned(spec))}
        for spec in map(MethodSpec.parse, whole.config.methods)
    }
    return {"schema": SCHEMA, "methods": {str(spec): found for spec, found in facts.items()}}


def recorded_code(whole: Plan, spec: MethodSpec) -> str | None:
    """Digest of the code that trained and evaluated a method, by its records: `code_of` the method at that time.

    `None` if there are no records.
    """
    for sweep in whole.sweeps:
        if sweep.spec == spec and sweep.content and sweep.training.content:
            trained, measured = sweep.training.content["code"], sweep.content["code"]
            # A method without a training of its own depends on the training code of another method.
            own = {name: version for name, version in measured.items() if name != "evaluation"}
            return code_digest(own | {"training": trained.get("training")}, measured)
    return None


def _untuned(spec: MethodSpec) -> MethodSpec:
    # A number on a scale tunes a method; a choice or a count of layers makes another variant of the method.
    space = method_class(spec).Config.search_space
    tuned = {name for name, search in space.items() if search.scale in ("linear", "log")}
    return replace(spec, params=tuple((name, value) for name, value in spec.params if name not in tuned))
