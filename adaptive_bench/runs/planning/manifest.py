"""Between a plan and the manifest of its run (see `store.manifest`), and manifests of runs that wrote none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.planning.plan import Plan, without_groups
from adaptive_bench.runs.planning.shuffled import follows_method
from adaptive_bench.runs.planning.timed import timed
from adaptive_bench.runs.planning.works import DialEvaluation, TrainingRun
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.keys import USUAL, run_key
from adaptive_bench.store.manifest import (
    EvaluationEntry,
    Manifest,
    TrainingEntry,
    check_evaluation,
    check_training,
    read,
)
from adaptive_bench.store.records import Record
from adaptive_bench.store.time_curves import TimeCurve
from adaptive_bench.store.timings import find_used


def manifest_of(whole: Plan) -> Manifest:
    """The list of a plan's records."""
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
            record=_record_of(sweep),
            method=str(sweep.spec),
            task=sweep.task,
            split=sweep.split,
            metric=sweep.metric,
            levels=tuple(sweep.levels),
            variant=sweep.variant,
        )
        for sweep in whole.sweeps
    )
    key = run_key(whole.config.model_dump(mode="json"))
    return Manifest(whole.config.out, tuple(trainings), tuple(evaluations), key)


def sealed_manifest_of(whole: Plan) -> Manifest:
    """The list of a finished plan's records, with seals of what they and the timings that it used hold now."""
    used: set[Path] = set()
    by_model: dict[str, dict[str, dict[str, TimeCurve]]] = {}
    for sweep in whole.sweeps:
        for setting, curve in sweep.curves.items():
            of_model = by_model.setdefault(str(sweep.training.content.get("backbone")), {})
            of_model.setdefault(setting, {})[str(sweep.spec)] = curve
    for model, curves in by_model.items():
        used.update(find_used(whole.config.out, model, curves))
    # A sweep may be shared with a run that asks for other points: they are not this one's.
    measured = {_record_of(sweep): points for sweep in whole.sweeps if (points := sweep.finished()) is not None}
    return manifest_of(whole).sealed(used, measured)


def _record_of(sweep: DialEvaluation) -> str:
    """Its record below the folder of records."""
    return f"{sweep.training.folder.name}/eval/{sweep.folder.name}"


def plan_on_disk(folder: Path, config: RunConfig, reporter: Reporter | None = None) -> Plan | None:
    """The plan that a run's own manifest lists; `None` without one."""
    written = read(folder)
    return None if written is None else plan_of(config, written, reporter)


def of_records(config: RunConfig, keys: Iterable[str]) -> Manifest:
    """What a run consists of, put together from what its records say of themselves: of runs without a manifest.

    Args:
        config: The run; records are looked for in its `out`.
        keys: Names of its records.
    """
    config = without_groups(config)
    known = {key: Record(config.out / "records" / key).read("config.json") or {} for key in keys}
    known = {key: about for key, about in known.items() if "method" in about}
    targets: dict[tuple[str, int], int] = {}
    for about in known.values():
        name = about["method"], about["seed"]
        targets[name] = targets.get(name, 0) + ("target" in about)
    trainings = [
        TrainingEntry(
            record=key,
            method=about["method"],
            seed=about["seed"],
            target=about.get("target", {}).get("saving"),
            only_target=targets[about["method"], about["seed"]] <= 1,
            base=about.get("base"),
        )
        for key, about in _bases_first(known)
    ]
    asked = {(str(MethodSpec.parse(text)), find_task(name).name) for text in config.methods for name in config.tasks}
    recipes = {writes: config.evaluation.in_key(writes=writes) for writes in (False, True)}
    evaluations = []
    for key in known:
        for sweep in sorted((config.out / "records" / key / "eval").glob("*-*")):
            about = Record(sweep).read("config.json") or {}
            if (about.get("method"), about.get("task")) not in asked:
                continue
            task = find_task(about["task"])
            recipe = recipes[task.kind == "generative"]
            if recipe.items() <= about.items() and USUAL.keys().isdisjoint(about.keys() - recipe.keys()):
                evaluations.append(
                    EvaluationEntry(
                        record=f"{key}/eval/{sweep.name}",
                        method=about["method"],
                        task=about["task"],
                        split=about.get("split", "test"),
                        metric=task.metrics[0],
                        levels=tuple(config.levels or task.levels),
                        variant=about.get("variant", ""),
                    )
                )
    evaluations.sort(key=lambda one: config.seeds.index(known[one.training]["seed"]))
    return Manifest(config.out, tuple(trainings), tuple(evaluations))


def _bases_first(known: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Records in an order in which each comes after the one it starts from."""
    ordered: dict[str, Mapping[str, Any]] = {}

    def put(key: str) -> None:
        if key in known and key not in ordered:
            if (base := known[key].get("base")) is not None:
                put(base)
            ordered[key] = known[key]

    for key in known:
        put(key)
    return list(ordered.items())


def _with_own(sweeps: Sequence[DialEvaluation]) -> list[DialEvaluation]:
    """The same, with each control told of the evaluation of its method on the same training, task and documents."""

    def place(one: DialEvaluation) -> tuple[object, ...]:
        return one.spec, one.task, one.training.folder, one.split

    own = {place(one): one for one in sweeps if not one.variant}
    return [replace(one, own=own.get(place(one))) if follows_method(one.content) else one for one in sweeps]


def plan_of(config: RunConfig, manifest: Manifest, reporter: Reporter | None = None) -> Plan:
    """The plan a manifest is of; its records are asked for what they depend on, and nothing is worked out again.

    Raises:
        EnvironmentProblem: A record is not what the manifest says of it.
    """
    config = without_groups(config)
    records = config.out / "records"  # beside the run, or where the caller says
    trainings: dict[str, TrainingRun] = {}
    for one in manifest.trainings:
        content = check_training(one, Record(records / one.record))
        base = None if one.base is None else trainings.get(one.base)
        spec, folder = MethodSpec.parse(one.method), records / one.record
        trainings[one.record] = TrainingRun(spec, one.seed, content, folder, base, one.target, one.only_target)
    sweeps = []
    for each in manifest.evaluations:
        training, folder = trainings[each.training], records / each.record
        content = check_evaluation(each, Record(folder))
        spec = MethodSpec.parse(each.method)
        found = DialEvaluation(spec, each.task, each.metric, each.levels, training, config, content, folder)
        sweeps.append(replace(found, split=each.split, variant=each.variant))
    sweeps = _with_own(sweeps)
    return Plan(config, tuple(trainings.values()), tuple(timed(config, sweeps, reporter or SilentReporter())))
