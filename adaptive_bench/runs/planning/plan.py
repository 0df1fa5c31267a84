"""The plan of a run: which trainings and which sweeps it consists of, and where each is on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.lookup import expand_tasks, find_task
from adaptive_bench.method import method_class, starting_spec, takes_target, training_spec
from adaptive_bench.model.interventions import SiteCosts
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.planning.backbones import empty_model, find_backbone
from adaptive_bench.runs.planning.eligible import SitesNotMeasured, key_entry, measured_sites
from adaptive_bench.runs.planning.precision import with_precision
from adaptive_bench.runs.planning.shapes import find_shape
from adaptive_bench.runs.planning.shuffled import SHUFFLED, has_control
from adaptive_bench.runs.planning.task_inputs import asked_since, task_inputs
from adaptive_bench.runs.planning.timed import timed
from adaptive_bench.runs.planning.training_targets import Goal, TrainingTargets
from adaptive_bench.runs.planning.training_text import (
    draw_calibration,
    draw_flop_calibration_text,
    draw_training,
    training_tasks,
)
from adaptive_bench.runs.planning.works import DialEvaluation, TrainingRun
from adaptive_bench.source import code_behind
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.keys import examples_fingerprint, key_of
from adaptive_bench.store.schema import SCHEMA
from adaptive_bench.task import DocumentSplit, Task


@dataclass(frozen=True)
class Plan:
    """Everything a run consists of, in the order it is carried out; and what the sites of its model cost, where that
    was measured, or whether that is left to be done.
    """

    config: RunConfig
    trainings: tuple[TrainingRun, ...]
    sweeps: tuple[DialEvaluation, ...]
    sites: SiteCosts | None = None
    sites_left: bool = False

    @property
    def untrained(self) -> list[TrainingRun]:
        """Trainings that are left."""
        return [training for training in self.trainings if not training.finished]


def plan(
    config: RunConfig,
    reporter: Reporter | None = None,
    splits: Sequence[DocumentSplit] | None = None,
    *,
    measures: bool = True,
) -> Plan:
    """Work out the plan of a run. Nothing is loaded but text, nothing is written; but a pretrained model is, and what
    its sites cost, where that decides who may skip where and was not measured before.

    Args:
        splits: Which documents are asked. By default those of the test; also those of validation for specs that are
            trained towards several targets, of which the best one for a level is chosen there.
        measures: Whether sites are measured where they were not before. Without, the plan is one without spared sites:
            it names other records, but there is as much to do.

    Raises:
        UsageError: Unknown method, parameter, task or shape, nothing to train on, or no timing to match on.
        EnvironmentProblem: Model or data cannot be reached.
    """
    config, reporter = without_groups(config), reporter or SilentReporter()
    specs = [MethodSpec.parse(text) for text in config.methods]
    trained = [training_spec(spec) for spec in specs]
    tasks = [find_task(name) for name in config.tasks]
    find_shape(config.project_onto)
    backbone = find_backbone(config.model)
    seeds = config.seeds if config.train.steps else ()  # nothing is trained towards a target without steps
    pricing = {seed: examples_fingerprint(draw_flop_calibration_text(config, seed)) for seed in seeds}
    targets = TrainingTargets.of(config, tasks, pricing, lambda: empty_model(backbone))
    questions = _Questions(config, tasks)
    sites, sites_left = None, False
    try:
        sites = measured_sites(config, backbone, reporter, measures=measures)
    except SitesNotMeasured:
        sites_left = True
    not_in_key = {"checkpoint_every", "parallel", "method_learning_rates", "target"}
    recipe = config.train.model_dump(mode="json", exclude=not_in_key)
    trainings: dict[Path, TrainingRun] = {}
    sweeps: list[DialEvaluation] = []
    for number, seed in enumerate(config.seeds):
        text = draw_training(config, seed, reporter if not number else SilentReporter())
        shared = {
            "schema": SCHEMA,
            "backbone": backbone.fingerprint,
            "data": {
                "tasks": [task.name for task in training_tasks(config)],
                "sha256": examples_fingerprint(text),
            },
            "recipe": recipe,
            "seed": seed,
            **({"chat_template": True} if config.chat_template else {}),
        }
        for spec, as_trained in zip(specs, trained, strict=True):
            eligible = key_entry(sites, spec, config)
            for training in _trainings(as_trained, shared | eligible, targets, config.out / "records", trainings):
                asked: Sequence[DocumentSplit] = ("test",) if training.has_single_target else ("test", "validation")
                sweeps += questions.to(spec, training, splits or asked, eligible)
    return Plan(config, tuple(trainings.values()), tuple(timed(config, sweeps, reporter)), sites, sites_left)


class _Questions:
    """What every trained model of a run is asked."""

    def __init__(self, config: RunConfig, tasks: Iterable[Task]) -> None:
        self.config = config
        self.contents = {
            task: config.evaluation.in_key(writes=task.kind == "generative")
            | {
                "task": task.name,
                **task_inputs(task, config.data_dir),
                **asked_since(task, config.evaluation.limit, config.evaluation.num_fewshot),
            }
            for task in tasks
        }
        self.calibration = {
            (task, seed): examples_fingerprint(draw_calibration(config, seed, task.name))
            for task in self.contents
            for seed in config.seeds
        }

    def to(
        self,
        spec: MethodSpec,
        training: TrainingRun,
        splits: Iterable[DocumentSplit],
        eligible: Mapping[str, Any],
    ) -> list[DialEvaluation]:
        """The sweeps of one spec on one training, with what its evaluations depend on because of spared sites."""
        about = {"cell": training.folder.name, "method": str(spec), "code": code_behind(spec.name, "evaluation")}
        about |= eligible
        sweeps = []
        for task, common in self.contents.items():
            name, levels = task.name.replace("/", "_"), self.config.levels or task.levels
            for split in splits:
                content = common | about | {"calibration_sha256": self.calibration[task, training.seed]}
                content |= {} if split == "test" else {"split": split}
                folder = training.folder / "eval" / f"{name}-{key_of(content)}"
                found = DialEvaluation(spec, task.name, task.metrics[0], levels, training, self.config, content, folder)
                own = replace(found, split=split)
                sweeps.append(own)
                if split == "test" and has_control(spec, self.config):
                    content = {**content, **SHUFFLED}
                    folder = training.folder / "eval" / f"{name}-shuffled-{key_of(content)}"
                    sweeps.append(replace(own, content=content, folder=folder, variant="shuffled", own=own))
        return sweeps


def checked_config(config: Any) -> RunConfig:
    """A config as it is, with the precision that `auto` means here; what does not describe a run is refused.

    Raises:
        UsageError: It is no config.
    """
    if not isinstance(config, RunConfig):
        raise UsageError(
            f"A run is described by a RunConfig, got {config!r}. Read one: load_config('nano', {{'seeds': 3}})."
        )
    return with_precision(config)


def without_groups(config: RunConfig) -> RunConfig:
    """The config with every group of tasks replaced by its tasks."""
    config = checked_config(config)
    train_on = None if config.train_on is None else expand_tasks(config.train_on)
    return config.model_copy(update={"tasks": expand_tasks(config.tasks), "train_on": train_on})


def _trainings(
    spec: MethodSpec, shared: Mapping[str, Any], targets: TrainingTargets, records: Path, known: dict[Path, TrainingRun]
) -> list[TrainingRun]:
    """The trainings of a spec, one for each target if it takes any, and before them in `known` what they start
    from.
    """
    method_type = method_class(spec)
    shared = shared if method_type.spares else {name: value for name, value in shared.items() if name != "eligible"}
    recipe = shared["recipe"] if method_type.trains else shared["recipe"] | {"steps": 0}
    content = dict(shared) | {
        "recipe": recipe,
        "method": str(spec),
        "code": code_behind(spec.name, "training"),
        "method_learning_rate": targets.rate(spec),
    }
    start = starting_spec(spec)
    base = None
    if start is not None:
        (base,) = _trainings(start, shared, targets, records, known)
        content["base"] = base.folder.name
    aims = bool(recipe["steps"]) and takes_target(spec)
    goals: Sequence[Goal | None] = targets.goals(method_type) if aims else (None,)
    trainings = []
    for goal in goals:
        about = content if goal is None else content | {"target": targets.describe(goal, shared["seed"])}
        folder = records / key_of(about)
        saving = None if goal is None else goal.saving
        training = TrainingRun(spec, shared["seed"], about, folder, base, saving, len(goals) == 1)
        trainings.append(known.setdefault(folder, training))
    return trainings
