"""Is a run's configuration what its records were made with? Asked of runs that were passed on, whose files may have
been edited. What is in no record (how often weights are kept, which levels a table shows) cannot be asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.method import method_class
from adaptive_bench.runs.planning.backbones import find_backbone
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.shuffled import has_control
from adaptive_bench.runs.planning.training_targets import TrainingTargets
from adaptive_bench.runs.planning.training_text import training_tasks
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.spec import MethodSpec, method_name
from adaptive_bench.store.records import DialEvaluationRecord

_Found = tuple[str, Any, Any, str]  # key, by the configuration, by the records, of what


def check_settings(whole: Plan) -> None:
    """Refuse a configuration that says something else than the records of its plan.

    Raises:
        EnvironmentProblem: It does; the first setting is named with both values.
    """
    found = next((one for one in _different(whole) if one[1] != one[2]), None)
    if found is not None:
        key, said, known, where = found
        raise EnvironmentProblem(
            f"A run's configuration is what its records were made with, but in config.yaml: {key} {said}, by the "
            f"records of {where} {known}. Submit the run again."
        )


def _different(whole: Plan) -> Iterator[_Found]:
    config = whole.config
    here = registry.names("methods")
    targets = TrainingTargets.of(_of_methods_here(config), [find_task(name) for name in config.tasks], {})
    recipe = config.train.model_dump(mode="json")
    models = {name: find_backbone(name).fingerprint for name in registry.names("models")}
    for training in whole.trainings:
        said, where = training.content, f"{training.spec}, seed {training.seed},"
        yield "model", config.model, _model_of(str(said["backbone"]), config.model, models), where
        for key, value in said["recipe"].items():
            if key in recipe and (key != "steps" or value):  # a base has none
                yield f"train.{key}", recipe[key], value, where
        yield "chat_template", config.chat_template, said.get("chat_template", False), where
        yield "train_on", [task.name for task in training_tasks(config)], said["data"]["tasks"], where
        if training.spec.name in here:
            yield "train.method_learning_rates", targets.rate(training.spec), said.get("method_learning_rate"), where
    used = {one.folder for sweep in whole.sweeps for one in sweep.training.chain}
    for training in whole.trainings:
        if training.folder not in used:
            yield "methods", ", ".join(config.methods), str(training.spec), training.folder.name
    yield from _of_sweeps(whole)
    yield from _of_targets(whole, targets)
    yield from _of_controls(whole)


def _of_sweeps(whole: Plan) -> Iterator[_Found]:
    """What was measured is shown: what a configuration leaves out may be what was worse."""
    asked = {sweep.folder for sweep in whole.sweeps}
    for training in whole.trainings:
        for folder in sorted((training.folder / "eval").glob("*")):
            if folder not in asked:
                said = DialEvaluationRecord(folder).read("config.json") or {}
                yield "methods and tasks", "without it", f"{said.get('method')} on {said.get('task')}", folder.name


def _model_of(recorded: str, said: str, models: Mapping[str, str]) -> str:
    """The name of the model that a training was made with, as far as anybody can know it.

    Args:
        recorded: What the record has of it: the digest of a folder's files, or a hub id and its commit.
        said: Its name by the configuration, which stands for a folder that is not here.
        models: By the name of a registered model the digest of its files.
    """
    known = next((name for name, digest in models.items() if digest == recorded), None)
    if known is not None:
        return known
    hub_id, at, _ = recorded.rpartition("@")
    if at:
        return hub_id
    return f"another model ({recorded})" if said in models else said


def _of_targets(whole: Plan, targets: TrainingTargets) -> Iterator[_Found]:
    """A method that takes a target is trained for all of them: one that was left out may have been the worse one."""
    by_spec: dict[tuple[MethodSpec, int], set[tuple[str, float]]] = {}
    for training in whole.trainings:
        if (target := training.content.get("target")) is not None:
            by_spec.setdefault((training.spec, training.seed), set()).add((target["axis"], target["saving"]))
    for (spec, seed), found in by_spec.items():
        of_layers = spec.name in registry.names("methods") and method_class(spec).skips_whole_layers
        if of_layers and len(targets.savings) > 1:  # each number of layers, which only the model knows
            continue
        said = sorted((str(targets.axis), saving) for saving in targets.savings)
        yield "train.target", _in_words(said), _in_words(sorted(found)), f"{spec}, seed {seed},"


def _in_words(targets: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{saving:g} of {axis}" for axis, saving in targets)


def _of_controls(whole: Plan) -> Iterator[_Found]:
    def place(sweep: DialEvaluation) -> tuple[object, ...]:
        return sweep.spec, sweep.task, sweep.training.folder

    tests = [sweep for sweep in whole.sweeps if sweep.split == "test"]
    controlled = {place(sweep) for sweep in tests if sweep.variant}
    for sweep in tests:
        if not sweep.variant and sweep.spec.name in registry.names("methods"):
            asked = has_control(sweep.spec, whole.config)
            yield "shuffled", asked, place(sweep) in controlled, f"{sweep.spec} on {sweep.task}"


def _of_methods_here(config: RunConfig) -> RunConfig:
    """The configuration without rates of methods whose plugin is not here, of which nothing can be asked."""
    rates = config.train.method_learning_rates
    known = {text: rate for text, rate in rates.items() if method_name(text) in registry.names("methods")}
    return config.model_copy(update={"train": config.train.model_copy(update={"method_learning_rates": known})})
