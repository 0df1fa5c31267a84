"""Between a plan and the manifest of its run (see `store.manifest`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from adaptive_bench.config import RunConfig
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.planning.plan import Plan, without_groups
from adaptive_bench.runs.planning.timed import timed
from adaptive_bench.runs.planning.works import DialEvaluation, TrainingRun
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.manifest import EvaluationEntry, Manifest, TrainingEntry, read
from adaptive_bench.store.records import Record


def manifest_of(whole: Plan) -> Manifest:
    """The list of a plan's records, with the points of those evaluations that are finished."""
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


def plan_on_disk(folder: Path, config: RunConfig, reporter: Reporter | None = None) -> Plan | None:
    """The plan that a run's own manifest lists; `None` without one."""
    written = read(folder)
    return None if written is None else plan_of(config, written, reporter)


def _with_own(sweeps: Sequence[DialEvaluation]) -> list[DialEvaluation]:
    """The same, with each control told of the evaluation of its method on the same training, task and documents."""

    def place(one: DialEvaluation) -> tuple[object, ...]:
        return one.spec, one.task, one.training.folder, one.split

    own = {place(one): one for one in sweeps if not one.variant}
    return [replace(one, own=own.get(place(one))) if one.variant else one for one in sweeps]


def plan_of(config: RunConfig, manifest: Manifest, reporter: Reporter | None = None) -> Plan:
    """The plan a manifest is of; its records are asked for what they depend on, and nothing is worked out again."""
    config = without_groups(config)
    records = config.out / "records"  # beside the run, or where the caller says
    trainings: dict[str, TrainingRun] = {}
    for one in manifest.trainings:
        content = Record(records / one.record).read("config") or {}
        base = None if one.base is None else trainings.get(one.base)
        spec, folder = MethodSpec.parse(one.method), records / one.record
        trainings[one.record] = TrainingRun(spec, one.seed, content, folder, base, one.target, one.only_target)
    sweeps = []
    for each in manifest.evaluations:
        training, folder = trainings[each.training], records / each.record
        content = Record(folder).read("config") or {}
        spec = MethodSpec.parse(each.method)
        found = DialEvaluation(spec, each.task, each.metric, each.levels, training, config, content, folder)
        sweeps.append(replace(found, split=each.split, variant=each.variant))
    sweeps = _with_own(sweeps)
    return Plan(config, tuple(trainings.values()), tuple(timed(config, sweeps, reporter or SilentReporter())))
