"""Names and begins the folder of a run, lists its records, and finds its configuration and trained models."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from adaptive_bench import registry
from adaptive_bench.config import RunConfig, load_config
from adaptive_bench.errors import UsageError
from adaptive_bench.method import takes_target
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.run_plan import Plan, without_groups
from adaptive_bench.runs.run_table import model_name
from adaptive_bench.runs.work_units import DialEvaluation, TrainingRun, with_curves
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.store.keys import run_key
from adaptive_bench.store.manifest import EvaluationEntry, Manifest, TrainingEntry, find_trained, of_run
from adaptive_bench.store.records import CHECKPOINT, SCHEMA, Record
from adaptive_bench.store.runs import BEGUN, KEY_DIGITS, check_run, config_in, is_run, run_command

if TYPE_CHECKING:
    from adaptive_bench.model import AdaptiveModel


_METHODS = 2  # methods that a run's name spells out before it counts the others
_LONGEST_PART = 24  # characters of one part of a run's name


def config_of(folder: Path) -> RunConfig:
    """The configuration of a run, with the output folder that the run lies in now, if its records are there."""
    check_run(folder)
    config_in(folder)  # for its error, which says how to get a damaged file back
    config = load_config(folder / BEGUN, reads_data=False)
    home = folder.resolve().parent.parent
    return config.model_copy(update={"out": home}) if (home / "records").is_dir() else config


def run_folder(config: RunConfig) -> Path:
    """The folder that holds a run's table."""
    return config.out / "runs" / run_name(config)


def run_name(config: RunConfig) -> str:
    """Model, first methods, seeds and the beginning of the run's key: `nano-gateskip-mod-2more-seed1-3f9a2c1b`.

    The name does not depend on where the run is written or which device computes it. Methods that are trained towards
    a saving come before those they are compared with.
    """
    specs = [MethodSpec.parse(text) for text in config.methods]
    names = list(dict.fromkeys(spec.name for spec in sorted(specs, key=lambda spec: not takes_target(spec))))
    # A single further method is named: `1more` would say less.
    more = [f"{len(names) - _METHODS}more"] if len(names) > _METHODS + 1 else names[_METHODS:]
    seeds = f"seed{config.seeds[0]}" if len(config.seeds) == 1 else f"{len(config.seeds)}seeds"
    key = run_key(config.model_dump(mode="json"))
    return "-".join(
        [_safe(part) for part in (model_name(config.model), *names[:_METHODS], *more, seeds)] + [key[:KEY_DIGITS]]
    )


def write_beginning(folder: Path, config: RunConfig, *, computes: bool = True) -> None:
    """Write a run's config, the time it began, and what its command needs besides.

    A run that continues with the same command and plugins keeps the time it first began. One that computes nothing
    leaves an existing `command.json` as it is.
    """
    atomic.write_text(folder / BEGUN, yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    about = {
        "schema": SCHEMA,
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "directory": str(Path.cwd()),
        "plugins": [str(path) for path in registry.plugin_files()],
        "command": run_command(folder, registry.plugin_files()),
    }
    if computes or not (folder / "command.json").is_file():
        atomic.update_json(folder / "command.json", about, ("began", "directory"))


def _safe(part: str) -> str:
    """The part with letters, digits and a few signs only, because a name is used in paths and commands."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", part).strip("-.")[:_LONGEST_PART] or "model"


def quantized_as(folder: Path) -> str:
    """The `quantize` form in which a run evaluated its models; `none` if it did not quantize, and for a saved model."""
    return config_of(folder).evaluation.quantize if (folder / BEGUN).is_file() else "none"


def check_has_dials(folder: Path, model: AdaptiveModel, stored: Sequence[str]) -> None:
    """Refuse a model as it was trained, without `stored` calibrations, because its run evaluated quantized weights."""
    form = quantized_as(folder)
    if form != "none" and not stored and model.needs_calibration:
        raise UsageError(
            f"Models are taken as they were trained, but this run evaluated with --quantize {form}, and its "
            f"calibration of {model.spec} fits no other weights. Give the same run without --quantize first: its "
            f"trainings are found again."
        )


def work_of(folder: Path) -> Plan:
    """The plan of a run, read from its manifest, so that neither its model nor its data are needed."""
    return plan_of(config_of(folder), of_run(folder))


def find_model(folder: Path, method: str | None, asked: str = "--method") -> tuple[Path, dict[str, Any]]:
    """The folder of a saved model, and what its method spares, as arguments of `AdaptiveModel.from_pretrained`.

    The folder is the given one, or for a run the checkpoint of a method's first seed. A model that was saved alone
    stores itself what it spares. In messages, `asked` is the option that names the method.
    """
    if not is_run(folder):
        nested = folder / CHECKPOINT
        return (nested if nested.is_dir() else folder), {}
    checkpoint, _, spared = find_trained(folder, method, asked=asked)
    return checkpoint, spared


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
