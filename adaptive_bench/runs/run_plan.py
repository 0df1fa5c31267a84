"""Works out the plan of a run: its trainings and sweeps, and where each is on disk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError, one_line
from adaptive_bench.evaluation.lookup import expand_tasks, find_task
from adaptive_bench.method import config_of, method_class, starting_spec, takes_target, training_spec
from adaptive_bench.model.interventions import SiteCosts
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.registry import did_you_mean
from adaptive_bench.runs.backbone_source import find_backbone
from adaptive_bench.runs.measured_settings import key_entry, measured_sites, with_precision
from adaptive_bench.runs.projection import find_shape
from adaptive_bench.runs.training_targets import (
    SHUFFLED,
    Goal,
    goals_of,
    has_control,
    levels_of,
    rate_of,
    target_axis,
)
from adaptive_bench.runs.training_text import (
    asked_since,
    draw_calibration,
    draw_flop_calibration_text,
    draw_training,
    task_inputs,
    training_tasks,
)
from adaptive_bench.runs.work_units import DialEvaluation, TrainingRun, with_curves
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.keys import code_behind, examples_fingerprint, key_of
from adaptive_bench.store.manifest import EvaluationEntry, Manifest, TrainingEntry
from adaptive_bench.store.records import SCHEMA, Record
from adaptive_bench.task import DocumentSplit, Task
from adaptive_bench.validation import each_once, parts_of

_FORM = re.compile(r"([1-9]\d*)/([1-9]\d*)")


@dataclass(frozen=True)
class Plan:
    """Everything a run consists of, in the order in which it is carried out.

    Attributes:
        sites: Costs of the model's sites; `None` if they are not measured or not needed.
        sites_left: Whether the costs still have to be measured.
    """

    config: RunConfig
    trainings: tuple[TrainingRun, ...]
    sweeps: tuple[DialEvaluation, ...]
    sites: SiteCosts | None = None
    sites_left: bool = False

    @property
    def untrained(self) -> list[TrainingRun]:
        """Trainings that are not finished."""
        return [training for training in self.trainings if not training.finished]


def plan(
    config: RunConfig,
    reporter: Reporter | None = None,
    splits: Sequence[DocumentSplit] = ("test",),
    *,
    measures: bool = True,
) -> Plan:
    """Work out the plan of a run.

    As a rule this loads nothing but text and writes nothing. If spared sites depend on costs that were not measured
    before, it loads the pretrained model, measures them and writes them.

    Args:
        splits: Which documents are asked.
        measures: Whether missing costs of sites may be measured. If not, the plan is one without spared sites: it names
            other records, but has as much work.

    Raises:
        UsageError: Unknown method, parameter, task or shape, nothing to train on, or no timing to match on.
        EnvironmentProblem: Model or data cannot be reached.
    """
    config, reporter = without_groups(config), reporter or SilentReporter()
    specs = [MethodSpec.parse(text) for text in config.methods]
    trained = [training_spec(spec) for spec in specs]
    tasks = [find_task(name) for name in config.tasks]
    find_shape(config.project_onto)  # refuses an unknown name now, not after the work
    backbone = find_backbone(config.model)
    levels = levels_of(config)
    for text in config.train.method_learning_rates:
        config_of(MethodSpec.parse(text))  # refuses a rate for an unknown method
    questions = {
        task: config.evaluation.in_key(writes=task.kind == "generative")
        | {
            "task": task.name,
            **task_inputs(task, config.data_dir),
            **asked_since(task, config.evaluation.limit, config.evaluation.num_fewshot),
        }
        for task in tasks
    }
    sites, sites_left = measured_sites(config, backbone, reporter, measures=measures)
    # The first two change no result. Rate and target are in each training's own part of the key.
    not_in_key = {"checkpoint_every", "parallel", "method_learning_rates", "target"}
    recipe = config.train.model_dump(mode="json", exclude=not_in_key)
    trainings: dict[Path, TrainingRun] = {}
    sweeps: list[DialEvaluation] = []
    for number, seed in enumerate(config.seeds):
        # Every seed draws its own text, but what is said about it is the same for all.
        text = examples_fingerprint(draw_training(config, seed, reporter if not number else SilentReporter()))
        # Without steps nothing is trained towards a target.
        pricing = examples_fingerprint(draw_flop_calibration_text(config, seed)) if config.train.steps else ""
        shared = {
            "schema": SCHEMA,
            "backbone": backbone.fingerprint,
            "data": {"tasks": [task.name for task in training_tasks(config)], "sha256": text},
            "recipe": recipe,
            "seed": seed,
            **({"chat_template": True} if config.chat_template else {}),
        }
        asked = {
            task: content | {"calibration_sha256": examples_fingerprint(draw_calibration(config, seed, task.name))}
            for task, content in questions.items()
        }
        for spec, as_trained in zip(specs, trained, strict=True):
            eligible = key_entry(sites, spec, config)
            # Specs that train alike get the same training here, and each its own evaluations of it.
            found = _trainings(config, as_trained, shared | eligible, levels, pricing, trainings)
            for training, at in found:
                about = {
                    "cell": training.folder.name,
                    "method": str(spec),
                    "code": code_behind(spec.name, "evaluation"),
                }
                contents = {task: content | about | eligible for task, content in asked.items()}
                sweeps += _sweeps(config, spec, training, at, splits, contents)
    return Plan(config, tuple(trainings.values()), tuple(with_curves(config, sweeps, reporter)), sites, sites_left)


def _sweeps(
    config: RunConfig,
    spec: MethodSpec,
    training: TrainingRun,
    levels: tuple[float, ...],
    splits: Iterable[DocumentSplit],
    contents: Mapping[Task, Mapping[str, Any]],
) -> list[DialEvaluation]:
    """The sweeps of one spec on one training.

    Args:
        levels: Savings at which the training is judged.
        splits: Which documents are asked.
        contents: For each task, what its sweep of test documents depends on.
    """
    sweeps = []
    for task, of_test in contents.items():
        # The argument of a task may be a path, and the name becomes that of a folder.
        name = task.name.replace("/", "_")
        for split in splits:
            content = {**of_test, **({} if split == "test" else {"split": split})}
            folder = training.folder / "eval" / f"{name}-{key_of(content)}"
            own = DialEvaluation(
                spec, task.name, task.metrics[0], levels, training, config, content, folder, split=split
            )
            sweeps.append(own)
            if split == "test" and has_control(spec, config):
                content = {**content, **SHUFFLED}
                folder = training.folder / "eval" / f"{name}-shuffled-{key_of(content)}"
                sweeps.append(replace(own, content=content, folder=folder, variant="shuffled", own=own))
    return sweeps


def without_groups(config: RunConfig) -> RunConfig:
    """The config with the precision that `auto` means here, and with every group of tasks replaced by its tasks."""
    if not isinstance(config, RunConfig):
        raise UsageError(
            f"A run is described by a RunConfig, got {config!r}. Read one: load_config('nano', {{'seeds': 3}})."
        )
    config = with_precision(config)
    train_on = None if config.train_on is None else expand_tasks(config.train_on)
    return config.model_copy(update={"tasks": expand_tasks(config.tasks), "train_on": train_on})


def _trainings(
    config: RunConfig,
    spec: MethodSpec,
    shared: Mapping[str, Any],
    levels: tuple[float, ...],
    pricing: str,
    known: dict[Path, TrainingRun],
) -> list[tuple[TrainingRun, tuple[float, ...]]]:
    """The trainings of a spec, each with the levels it is judged at: one for each target if the spec takes targets.

    They are added to `known`, after the training that they start from.

    Args:
        shared: What every training of the seed depends on.
        pricing: Digest of the text on which targets are turned into schedules.
    """
    method_type = method_class(spec)
    # What a method cannot do is not in its key, so that it is trained once for runs with and without it.
    shared = shared if method_type.spares else {name: value for name, value in shared.items() if name != "eligible"}
    # How long other methods train does not matter to one that never does.
    recipe = shared["recipe"] if method_type.trains else shared["recipe"] | {"steps": 0}
    content = dict(shared) | {
        "recipe": recipe,
        "method": str(spec),
        "code": code_behind(spec.name, "training"),
        "method_learning_rate": rate_of(spec, config.train.method_learning_rates),
    }
    start = starting_spec(spec)
    base = None
    if start is not None:
        # Exactly one, since no method that another starts from takes a target.
        ((base, _),) = _trainings(config, start, shared, levels, pricing, known)
        content["base"] = base.folder.name
    aims = bool(recipe["steps"]) and takes_target(spec)
    goals = goals_of(config, levels) if aims else (Goal(None, levels),)
    trainings = []
    for goal in goals:
        target = {"axis": target_axis(config), "saving": goal.saving, "text": pricing}
        about = content | {"target": target} if aims else content
        folder = config.out / "records" / key_of(about)
        training = TrainingRun(spec, shared["seed"], about, folder, base, goal.saving, len(goals) == 1)
        trainings.append((known.setdefault(folder, training), goal.levels))
    return trainings


@dataclass(frozen=True)
class Shard:
    """A part of a plan: some of its cells, each a training with all its evaluations.

    The plan's order decides which, so that several commands with the same config divide it in the same way without
    communicating. A cell may start from a training of another part: the command that needs it first trains it, and the
    others wait for the result.

    Attributes:
        number, parts: `2/8` has every eighth cell, from the second on.
        cells: Names of records; if there are any, the part consists of these cells instead.
    """

    number: int = 1
    parts: int = 1
    cells: tuple[str, ...] = ()

    @classmethod
    def parse(cls, shard: str | None, cells: str | None) -> Shard:
        """Read `2/8`, or names of records separated by commas.

        Raises:
            UsageError: Both are given, or one has the wrong form.
        """
        if shard is not None and cells is not None:
            raise UsageError("A command does a shard or named cells, got --shard and --cell. Leave one of them out.")
        if cells is not None:
            try:
                named = each_once(parts_of(cells))
            except ValueError as error:
                raise UsageError(f"--cell is wrong: {error}, got {one_line(cells, 100)}.") from None
            if not named:  # an empty tuple would stand for every cell
                raise UsageError(f"--cell names at least one cell, got {cells!r}. Give one, or leave it out.")
            return cls(cells=named)
        if shard is None:
            return cls()
        found = _FORM.fullmatch(shard.strip())
        if found is None or int(found[1]) > int(found[2]):
            raise UsageError(f"A shard is a part of several, such as --shard 2/8 (1/8 to 8/8), got {shard!r}.")
        return cls(int(found[1]), int(found[2]))

    @property
    def is_whole(self) -> bool:
        """Whether this part is the whole plan."""
        return self.parts == 1 and not self.cells

    def of(self, plan: Plan) -> tuple[TrainingRun, ...]:
        """The cells of this part, in the order of the plan."""
        if not self.cells:
            return plan.trainings[self.number - 1 :: self.parts]
        known = {cell.folder.name: cell for cell in plan.trainings}
        for name in self.cells:
            if name not in known:
                raise UsageError(
                    f"A cell is named like its record, but the plan has no cell {name!r}: the name is wrong, or code, "
                    f"data or recipe have changed since it was planned. {did_you_mean(name, known)}"
                )
        return tuple(cell for name, cell in known.items() if name in self.cells)


WHOLE = Shard()


def manifest_of(whole: Plan) -> Manifest:
    """The list of a plan's records, with the measured points of finished evaluations."""
    trainings = (
        TrainingEntry(
            record=training.folder.name,
            method=str(training.spec),
            seed=training.seed,
            target=training.target,
            only_target=training.has_single_target,
            base=None if training.base is None else training.base.folder.name,
        )
        for training in whole.trainings
    )
    evaluations = (
        EvaluationEntry(
            record=f"{sweep.training.folder.name}/eval/{sweep.folder.name}",
            method=str(sweep.spec),
            task=sweep.task,
            split=sweep.split,
            metric=sweep.metric,
            levels=tuple(sweep.levels),
            variant=sweep.variant,
            asked=tuple(sorted(sweep.finished() or ())),
        )
        for sweep in whole.sweeps
    )
    return Manifest(whole.config.out, tuple(trainings), tuple(evaluations))


def plan_of(config: RunConfig, manifest: Manifest, reporter: Reporter | None = None) -> Plan:
    """The plan that a manifest describes. Contents of keys are read from the records; nothing is worked out again."""
    config = without_groups(config)
    records = config.out / "records"  # of the folder that holds the run, or that the caller chose
    trainings: dict[str, TrainingRun] = {}
    for one in manifest.trainings:
        content = Record(records / one.record).read("config") or {}
        base = None if one.base is None else trainings.get(one.base)  # listed before
        spec, folder = MethodSpec.parse(one.method), records / one.record
        trainings[one.record] = TrainingRun(spec, one.seed, content, folder, base, one.target, one.only_target)
    sweeps: dict[tuple[str, ...], DialEvaluation] = {}  # each control after the sweep of its method
    for each in manifest.evaluations:
        folder, place = records / each.record, (each.method, each.task, each.training, each.split)
        sweeps[*place, each.variant] = DialEvaluation(
            spec=MethodSpec.parse(each.method),
            task=each.task,
            metric=each.metric,
            levels=each.levels,
            training=trainings[each.training],
            config=config,
            content=Record(folder).read("config") or {},
            folder=folder,
            split=each.split,
            variant=each.variant,
            own=sweeps.get((*place, "")) if each.variant else None,
        )
    known = with_curves(config, list(sweeps.values()), reporter or SilentReporter())
    return Plan(config, tuple(trainings.values()), tuple(known))
