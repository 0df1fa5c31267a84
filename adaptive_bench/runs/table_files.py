"""Writes the table of a run and the files beside it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from adaptive_bench import registry
from adaptive_bench.backbone import Backbone
from adaptive_bench.capabilities import stored_matrix
from adaptive_bench.config import RunConfig
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.jobs.job import Failure
from adaptive_bench.method import method_class, method_of
from adaptive_bench.runs.projection import find_shape, priced
from adaptive_bench.runs.run_plan import Plan, manifest_of
from adaptive_bench.runs.run_table import outcome_of
from adaptive_bench.runs.work_units import TrainingRun
from adaptive_bench.source import TABLES, code_digest, code_of
from adaptive_bench.spec import MethodSpec, method_name
from adaptive_bench.store import atomic
from adaptive_bench.store.keys import canonical, run_key
from adaptive_bench.store.records import SCHEMA, Record
from adaptive_bench.store.results import write_run
from adaptive_bench.tables.comparability import QUICK_NOTE
from adaptive_bench.tables.task_notes import floor_ceiling_notes, unparsable_notes

_LAYERS = 8  # layers of the model without values on which a method's KV policy is looked up


def method_facts(whole: Plan) -> dict[str, Any]:
    """Plain values for `methods.json`: by spec,

    causality: `C0`, `C1` or `C2`, as the conformance suite found it; `None` if this spec was never checked.
    kv_policy: What becomes of the keys and values of skipped tokens; `None` if the method cannot be built to tell.
    executor: The executor that measured the method.
    code: Digest of the code that trained and evaluated the method.
    variant: The spec without the numbers that `tune` searches: the method, whatever it was tuned to.
    settings_tried: How many different settings of the method were trained on this backbone in the run's folder. Each
        setting of the run or of `tune` counts once, whatever its seeds.
    """
    tried = _settings(whole.trainings)
    backbone, _ = priced(find_shape(whole.config.project_onto), _LAYERS)
    found = {}
    for text in whole.config.methods:
        spec = MethodSpec.parse(text)
        found[str(spec)] = {
            "causality": stored_matrix(spec.name).get(str(spec), {}).get("causality"),
            "kv_policy": _kv_policy(spec, backbone),
            "executor": "packed",
            "code": recorded_code(whole, spec) or code_of(spec.name),
            "variant": str(_untuned(spec)),
            "settings_tried": len(tried.get(spec.name, ())),
        }
    return {"schema": SCHEMA, "methods": found}


def recorded_code(whole: Plan, spec: MethodSpec) -> str | None:
    """Digest of the code that trained and evaluated a method, by its records: `source.code_of` the method at that time.

    `None` if there are no records, or if they do not tell, as those of early versions.
    """
    for sweep in whole.sweeps:
        trained, measured = (one.get("code") for one in (sweep.training.content, sweep.content))
        if sweep.spec == spec and isinstance(trained, dict) and isinstance(measured, dict):
            # A method without a training of its own depends on the training code of another method.
            own = {name: version for name, version in measured.items() if name != "evaluation"}
            return code_digest(own | {"training": trained.get("training")}, measured)
    return None


def _untuned(spec: MethodSpec) -> MethodSpec:
    # A number on a scale tunes a method; a choice or a count of layers makes another variant of the method.
    space = method_class(spec).Config.search_space
    tuned = {name for name, search in space.items() if search.scale in ("linear", "log")}
    return replace(spec, params=tuple((name, value) for name, value in spec.params if name not in tuned))


def _settings(trainings: Sequence[TrainingRun]) -> dict[str, set[str]]:
    """The different settings of each method among all trainings in the folders of a run's trainings, by method name."""
    found: dict[str, set[str]] = {}
    backbones = {training.content.get("backbone") for training in trainings}
    above = {training.folder.parent for training in trainings}
    for folder in sorted(path for one in above if one.is_dir() for path in one.iterdir() if path.is_dir()):
        config = Record(folder).read("config")
        if isinstance(config, dict) and config.get("backbone") in backbones and isinstance(config.get("method"), str):
            name = method_name(config["method"])
            same = {key: value for key, value in config.items() if key not in ("seed", "data", "target")}
            found.setdefault(name, set()).add(canonical(same))
    return found


def _kv_policy(spec: MethodSpec, backbone: Backbone) -> str | None:
    try:
        with torch.device("meta"):
            return str(method_of(spec, backbone).kv_policy)
    except Exception:  # noqa: BLE001 - a plugin's method may refuse these sizes with any error; the table is written
        return None


def notes_on(rows: Sequence[Mapping[str, Any]], config: RunConfig) -> list[str]:
    """Notes about a quick run, scores at a task's floor or ceiling, and texts in which no answer is found."""
    matched = [row for row in rows if (row["axis"], row["phase"]) == (config.match_on, config.match_phase)]
    about = f"{config.train.steps} steps, {config.evaluation.calibration_examples} calibration examples"
    quick = f"{QUICK_NOTE}: a first look, with {about} and at most {config.evaluation.limit} documents."
    notes = [*floor_ceiling_notes(rows, map(find_task, config.tasks)), *unparsable_notes(matched)]
    return [quick, *notes] if config.is_quick else notes


def write_table(
    whole: Plan, folder: Path, failures: Sequence[Failure], notes: Sequence[str], start_s: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """Match the measured points and write the table.

    Args:
        failures: Work that the table lacks.
        notes: Notes from before the run.
        start_s: When the run began, by `time.perf_counter`.

    Returns:
        The rows, and what a reader should know about them.
    """
    config = whole.config
    found = outcome_of(whole)
    plain = [row.to_json() for row in found.rows]
    warnings = [*notes, *notes_on(plain, config), *found.warnings]
    about: dict[str, Any] = {
        "schema": SCHEMA,
        "tables": TABLES,
        "run_key": run_key(config.model_dump(mode="json")),
        "state": "partial" if failures else "done",
        "methods": config.methods,
        "tasks": config.tasks,
        "model": config.model,
        "seeds": config.seeds,
        "match_on": config.match_on,
        "match_phase": config.match_phase,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "took_s": time.perf_counter() - start_s,
        "records": [training.folder.name for training in whole.trainings],
        "notes": list(notes),
        "warnings": warnings,
        "failures": [str(failure) for failure in failures],
    }
    atomic.update_text(folder / "table.json", atomic.json_text(plain))
    manifest_of(whole).write(folder)
    atomic.update_text(folder / "methods.json", atomic.json_text(method_facts(whole)))
    atomic.update_text(folder / "answers.json", canonical(found.answers) + "\n")
    write_run(folder, about)
    table = [folder / "table.json"]
    if "markdown" in registry.names("leaderboards"):
        render = registry.get("leaderboards", "markdown")
        atomic.update_text(folder / "leaderboard.md", render(table, [str(failure) for failure in failures]))
    if "svg" in registry.names("leaderboards"):
        atomic.update_text(folder / "leaderboard.svg", registry.get("leaderboards", "svg")(table))
    return plain, warnings
