"""Works out the plan of a run: its levels, trainings and sweeps, and where each is on disk."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from adaptive_bench import registry
from adaptive_bench.backbone import Backbone
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import PluginFault, UsageError
from adaptive_bench.evaluation.lookup import expand_tasks, find_task
from adaptive_bench.method import (
    DEFAULT_TARGET,
    config_of,
    method_class,
    starting_spec,
    takes_target,
    training_spec,
    why_not_shuffled,
)
from adaptive_bench.model.interventions import SiteCosts
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.recipe import FlopAxis
from adaptive_bench.runs.backbone_source import empty_model, find_backbone
from adaptive_bench.runs.measured_settings import key_entry, measured_sites, with_precision
from adaptive_bench.runs.projection import find_shape
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
from adaptive_bench.store.records import SCHEMA
from adaptive_bench.task import DocumentSplit, Task

_PERCENT = 15  # per cent of the layers that `levels: auto` comes nearest to
# Raise it when shuffled decisions give other outputs (`engine.shuffling`) or are measured at other points.
VERSION = 2
# What the key of a shuffled evaluation has in addition to the key of the method's own evaluation.
SHUFFLED: Mapping[str, Any] = {"variant": "shuffled", "shuffled": VERSION}


@dataclass(frozen=True)
class Plan:
    """Everything a run consists of, in the order in which it is carried out."""

    config: RunConfig
    trainings: tuple[TrainingRun, ...]
    sweeps: tuple[DialEvaluation, ...]
    sites: SiteCosts | None = None  # costs of the model's sites, if they are needed and measured
    sites_left: bool = False  # whether they still have to be measured

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
    """The sweeps of one spec on one training; `contents` is what the sweep of each task's test documents depends on."""
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

    They depend on what is `shared` by all trainings of the seed, and if they have targets on the digest of the text for
    `pricing` them. They are added to `known`, after the training that they start from.
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
        bases = _trainings(config, start, shared, levels, pricing, known)
        if len(bases) > 1:
            raise PluginFault(
                f"A training starts from one other training, but starts_from of {spec} gives {start}, which is trained "
                f"{len(bases)} times, for each level anew. Correct the method, or give one level."
            )
        base = bases[0][0]
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


class Goal(NamedTuple):
    """What one training is for: the saving that it moves towards, if any, and the levels at which it is judged."""

    saving: float | None
    levels: tuple[float, ...]


def auto_level(layers: int) -> float:
    """The share of a model's layers, a whole number of them, that is nearest to 15 %; the smaller one of a tie."""
    nearest = math.ceil(_PERCENT * layers / 100 - 0.5)  # rounds halves down, unlike `round`
    return max(1, nearest) / layers


def levels_of(config: RunConfig) -> tuple[float, ...]:
    """The levels of a run, in ascending order."""
    if config.levels is not None:
        return config.levels
    if config.match_on not in ("layers", "tokens"):
        return (_PERCENT / 100,)
    return (auto_level(Backbone(empty_model(find_backbone(config.model))).num_layers),)


def target_axis(config: RunConfig) -> FlopAxis:
    """The axis that targets of a run are a share of: the axis the run is matched on, but net FLOPs for bytes, and
    tokens for what a dial claims.
    """
    priced: dict[str, FlopAxis] = {"bytes": "net", "claimed": "tokens"}
    return priced.get(config.match_on) or cast(FlopAxis, config.match_on)


def rate_of(spec: MethodSpec, rates: Mapping[str, float]) -> float | None:
    """Learning rate of the parameters that a spec adds, or `None` for the rate of the run.

    The spec's own rate comes first, then that of its parameters in `bench` semantics, then that of its method's name.
    """
    given = {MethodSpec.parse(text): rate for text, rate in rates.items()}
    # A rate by name alone is none of these, because it holds for every spec of the method.
    of_specs = {training_spec(one): rate for one, rate in given.items() if str(one) != one.name}
    return of_specs.get(spec, of_specs.get(MethodSpec(spec.name, spec.params), rates.get(spec.name)))


def goals_of(config: RunConfig, levels: tuple[float, ...]) -> tuple[Goal, ...]:
    """The goals of every method that trains towards a saving, one training for each.

    There is one goal for each level above 0, judged at that level; levels of 0 are judged with the first goal. With a
    target, or without a level above 0, there is one goal for all levels.
    """
    target = config.train.target
    saving = [level for level in levels if level > 0]
    if target is not None or not saving:
        return (Goal(DEFAULT_TARGET if target is None else target, levels),)
    nothing = tuple(level for level in levels if level <= 0)
    return tuple(Goal(level, (level,) if number else (*nothing, level)) for number, level in enumerate(saving))


def has_control(spec: MethodSpec, config: RunConfig) -> bool:
    """Whether a run measures the shuffled-decisions control of a spec."""
    return config.shuffled and method_class(spec).adapts and why_not_shuffled(spec) is None


def without_control(config: RunConfig) -> list[str]:
    """One sentence for each method of a run whose shuffled-decisions control was asked for but is not possible.

    Methods that treat all tokens alike need no control.
    """
    specs = map(MethodSpec.parse, config.methods if config.shuffled else ())
    here = registry.names("methods")  # methods that are not registered here are passed over
    return [
        f"{spec} has no control of shuffled decisions: a token can have another token's decisions where each is "
        f"decided for itself, but {why}."
        for spec in specs
        if spec.name in here and method_class(spec).adapts and (why := why_not_shuffled(spec))
    ]
