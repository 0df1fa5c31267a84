"""Writes the table of a run and the files beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate
from transformers import AutoModelForCausalLM, PretrainedConfig

from adaptive_bench import registry
from adaptive_bench.backbone import Backbone
from adaptive_bench.capabilities import stored_matrix
from adaptive_bench.config import RunConfig
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.jobs.job import Failure
from adaptive_bench.method import method_class, method_of
from adaptive_bench.runs.run_plan import Plan, manifest_of
from adaptive_bench.runs.run_table import outcome_of
from adaptive_bench.runs.shapes import find_shape
from adaptive_bench.runs.training_text import training_tasks
from adaptive_bench.runs.work_units import TrainingRun
from adaptive_bench.source import TABLES, code_digest, code_of
from adaptive_bench.spec import MethodSpec, method_name
from adaptive_bench.store import atomic
from adaptive_bench.store.keys import canonical, run_key
from adaptive_bench.store.records import SCHEMA, Record
from adaptive_bench.store.results import write_run
from adaptive_bench.tables.finished import QUICK_NOTE
from adaptive_bench.tables.floor_ceiling import floor_ceiling_notes
from adaptive_bench.tables.unparsable import unparsable_notes

_SPREAD = ("min", "median", "p95", "max")
_LAYERS = 8  # layers of the model without values on which a method's KV policy is looked up


def data_card(whole: Plan) -> str:
    """The data card of a run, as a Markdown page."""
    config = whole.config
    where = "the Hugging Face hub" if config.data_dir is None else f"`{config.data_dir}`"
    parts = [
        "# Data card",
        f"Model `{config.model}`; methods {', '.join(f'`{spec}`' for spec in config.methods)}. Data read from {where}.",
        "## Trained and calibrated on",
        _table(_training_sources(whole)) if config.train.steps else "Nothing was trained.",
        *([_table(_sequences(whole))] if config.train.steps else []),
        "## Tested on",
        _table(_tested(whole)),
        "Digests are of the documents and of the prompts made of them, worked examples included, in their order. "
        "A data set gives no document to two of training, calibration and test. Where test documents stand in the "
        "training text all the same, a note under the table says how many.",
    ]
    return "\n\n".join(parts) + "\n"


def _training_sources(whole: Plan) -> Iterator[dict[str, str]]:
    for task in training_tasks(whole.config):
        text = task.text_source or task.description
        yield {"task": task.name, "text": text, "terms": task.licence or "see its source"}


def _sequences(whole: Plan) -> Iterator[dict[str, Any]]:
    """One row for each seed, because all methods of a seed are trained on the same sequences."""
    seen: set[int] = set()
    for training in whole.trainings:
        about = training.record.read("data")
        if about is None or training.seed in seen:
            continue
        seen.add(training.seed)
        yield {
            "seed": training.seed,
            "sequences": about["sequences"],
            "different": about["examples"],
            "cut": about["truncated_examples"],
            "tokens": about["tokens"],
            "learned": about["loss_tokens"],
            "prompt tokens": _spread(about.get("prompt_tokens")),
            "completion tokens": _spread(about.get("completion_tokens")),
            "order sha256": about["order_sha256"][:16],
        }


def _tested(whole: Plan) -> Iterator[dict[str, Any]]:
    for name in whole.config.tasks:
        task = find_task(name)
        points = (
            point for sweep in whole.sweeps if sweep.task == task.name for point in (sweep.finished() or {}).values()
        )
        about = next(points, None)
        data = (about.data if about is not None else None) or {}
        yield {
            "task": task.name,
            "source": task.source or "generated",
            "terms": task.licence or "see its source",
            "revision": data.get("revision") or "",
            "documents": "" if about is None else about.docs,
            "shots": "" if about is None else about.num_fewshot,
            "documents sha256": str(data.get("documents_sha256", ""))[:16],
            "prompts sha256": str(data.get("prompts_sha256", ""))[:16],
            "scored by": ", ".join(f"{metric}: {text}" for metric, text in (data.get("signatures") or {}).items()),
        }


def _spread(lengths: dict[str, int] | None) -> str:
    return "" if lengths is None else " / ".join(str(lengths[name]) for name in _SPREAD)


def _table(rows: Iterator[dict[str, Any]]) -> str:
    return tabulate(list(rows), headers="keys", tablefmt="pipe", disable_numparse=True)


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
    backbone = _empty_backbone(find_shape(whole.config.project_onto))
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
    for folder in _folders({training.folder.parent for training in trainings}):
        config = Record(folder).read("config")
        if isinstance(config, dict) and config.get("backbone") in backbones and isinstance(config.get("method"), str):
            name = method_name(config["method"])
            same = {key: value for key, value in config.items() if key not in ("seed", "data", "target")}
            found.setdefault(name, set()).add(canonical(same))
    return found


def _folders(above: set[Path]) -> list[Path]:
    return sorted(path for one in above if one.is_dir() for path in one.iterdir() if path.is_dir())


def _empty_backbone(shape: PretrainedConfig) -> Backbone:
    values = shape.to_dict() | {"num_hidden_layers": _LAYERS, "layer_types": None}
    with torch.device("meta"):
        return Backbone(AutoModelForCausalLM.from_config(type(shape).from_dict(values)))


def _kv_policy(spec: MethodSpec, backbone: Backbone) -> str | None:
    try:
        with torch.device("meta"):
            return str(method_of(spec, backbone).kv_policy)
    except Exception:  # noqa: BLE001 - a plugin's method may refuse these sizes with any error; the table is written
        return None


def _if_quick(config: RunConfig) -> list[str]:
    about = f"{config.train.steps} steps, {config.evaluation.calibration_examples} calibration examples"
    return [
        f"{QUICK_NOTE}: a first look, with {about} and at most {config.evaluation.limit} documents."
    ] * config.is_quick


def notes_on(rows: Sequence[Mapping[str, Any]], config: RunConfig) -> list[str]:
    """Notes about a quick run, scores at a task's floor or ceiling, and texts in which no answer is found."""
    matched = [row for row in rows if (row["axis"], row["phase"]) == (config.match_on, config.match_phase)]
    return [*_if_quick(config), *floor_ceiling_notes(rows, map(find_task, config.tasks)), *unparsable_notes(matched)]


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
    atomic.update_text(folder / "table.json", atomic.rows_text(plain))
    manifest_of(whole).write(folder)
    atomic.update_text(folder / "methods.json", atomic.json_text(method_facts(whole)))
    atomic.update_text(folder / "answers.json", canonical(found.answers) + "\n")
    atomic.update_text(folder / "data_card.md", data_card(whole))
    write_run(folder, about)
    table = [folder / "table.json"]
    if "markdown" in registry.names("leaderboards"):
        render = registry.get("leaderboards", "markdown")
        atomic.update_text(folder / "leaderboard.md", render(table, [str(failure) for failure in failures]))
    if "svg" in registry.names("leaderboards"):
        atomic.update_text(folder / "leaderboard.svg", registry.get("leaderboards", "svg")(table))
    return plain, warnings
