"""What the rows of a run were measured under, the same for every method; by it rows of other runs are told apart."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.method import takes_target
from adaptive_bench.runs.training_targets import target_axis
from adaptive_bench.runs.training_text import training_tasks
from adaptive_bench.runs.work_units import DialEvaluation
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.store.evaluations import Evaluation
from adaptive_bench.store.keys import USUAL, key_of, run_key
from adaptive_bench.store.records import SCHEMA
from adaptive_bench.store.runs import KEY_DIGITS, run_command
from adaptive_bench.tables.comparable import Conditions

# What neither belongs to every method alike nor changes a result.
_NO_RECIPE = {"checkpoint_every", "method_learning_rates", "target", "parallel", "gradient_checkpointing"}
_METHODS = 2  # named
_LONGEST_PART = 24


def conditions(sweep: DialEvaluation, evaluation: Evaluation) -> Conditions:
    """The conditions of a sweep's rows, one of whose evaluations this is."""
    data: Mapping[str, Any] = evaluation.data or {}
    definition = sweep.content.get("task_code")  # the part of its key that `training_text` gives
    version, prompts, contents = (data.get(key) for key in ("task_version", "prompts_sha256", "documents_sha256"))
    return Conditions(
        model=model_name(sweep.config.model),
        backbone=sweep.training.content["backbone"],
        recipe=recipe_text(sweep.config),
        task_version=None if version is None else str(version),
        documents=evaluation.docs,
        shots=evaluation.num_fewshot,
        asked=None if prompts is None else str(prompts)[:16],
        contents=None if contents is None else str(contents)[:16],
        definition=None if definition is None else key_of(definition),
    )


def model_name(model: str) -> str:
    """A model as readers know it: a hub id or a registered name as it is, of a folder the last part."""
    folder = Path(model).expanduser()
    is_folder = (
        folder.is_dir() or folder.is_absolute() or model.startswith((".", "~"))
    )  # whether it is still there or not
    return folder.resolve().name if is_folder else model


def recipe_text(config: RunConfig) -> str:
    """How every method of a run is trained and calibrated, as settings with commas between them."""
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
    digests = {name: key_of(said[name])[:8] for name in ("stop_strings", "system_prompt") if name in said}
    settings |= said | digests
    return ", ".join(f"{name} {_plain(value)}" for name, value in settings.items() if value is not None)


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return "/".join(map(_plain, value))
    if isinstance(value, dict):
        return "/".join(f"{name} {_plain(part)}" for name, part in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def run_folder(config: RunConfig) -> Path:
    """Where a run keeps its table."""
    return config.out / "runs" / run_name(config)


def run_name(config: RunConfig) -> str:
    """Model, the first methods, seeds and the beginning of the run's key: `nano-gateskip-mod-2more-seed1-3f9a2c1b`.

    Where the run is written and on what it is computed make no difference. Methods that are trained for a saving come
    before those they are compared with.
    """
    specs = [MethodSpec.parse(text) for text in config.methods]
    names = list(dict.fromkeys(spec.name for spec in sorted(specs, key=lambda spec: not takes_target(spec))))
    more = [f"{len(names) - _METHODS}more"] if len(names) > _METHODS + 1 else names[_METHODS:]
    seeds = f"seed{config.seeds[0]}" if len(config.seeds) == 1 else f"{len(config.seeds)}seeds"
    key = run_key(config.model_dump(mode="json"))
    return "-".join(
        [_safe(part) for part in (model_name(config.model), *names[:_METHODS], *more, seeds)] + [key[:KEY_DIGITS]]
    )


def write_beginning(folder: Path, config: RunConfig, *, computes: bool = True) -> None:
    """Note the config, when a run began, and what its command needs beside; of one that continues nothing is new.

    Args:
        computes: Whether anything is computed: else what the run was begun with stays as it is noted.
    """
    atomic.update_text(folder / "config.yaml", yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    about = {
        "schema": SCHEMA,
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "directory": str(Path.cwd()),
        "plugins": [str(path) for path in registry.plugin_files()],
        "command": run_command(folder, registry.plugin_files()),
    }
    file = folder / "command.json"
    if not computes and file.is_file():
        return
    if not _says(file, {key: about[key] for key in ("schema", "plugins", "command")}):
        atomic.write_json(file, about)


def _says(file: Path, about: Mapping[str, Any]) -> bool:
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(known, dict) and about.items() <= known.items()


def _safe(part: str) -> str:
    """Letters, digits and a few signs: a name is part of a path and of a command."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", part).strip("-.")[:_LONGEST_PART] or "model"
