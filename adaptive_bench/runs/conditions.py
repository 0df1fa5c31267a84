"""Describes the conditions that a run's rows were measured under, and names the run.

The conditions are the same for every method of a run; tables use them to tell its rows from those of other runs.
"""

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
from adaptive_bench.store.evaluation import Evaluation
from adaptive_bench.store.keys import USUAL, key_of, run_key
from adaptive_bench.store.records import SCHEMA
from adaptive_bench.store.runs import KEY_DIGITS, run_command
from adaptive_bench.tables.comparability import Conditions

# Left out of the recipe's text: these do not apply to every method, do not change a result, or are added separately.
_NO_RECIPE = {"checkpoint_every", "method_learning_rates", "target", "parallel", "gradient_checkpointing"}
_METHODS = 2  # methods that a run's name spells out before it counts the others
_LONGEST_PART = 24  # characters of one part of a run's name


def conditions(sweep: DialEvaluation, evaluation: Evaluation) -> Conditions:
    """The conditions of a sweep's rows.

    Args:
        evaluation: Any evaluation of the sweep.
    """
    data: Mapping[str, Any] = evaluation.data or {}
    definition = sweep.content.get("task_code")  # the part of the sweep's key that `training_text.task_inputs` makes
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
    """The name of a model for readers: a hub id or registered name unchanged, or the last part of a folder's path."""
    folder = Path(model).expanduser()
    is_folder = (
        folder.is_dir() or folder.is_absolute() or model.startswith((".", "~"))
    )  # a path counts as a folder even if it no longer exists
    return folder.resolve().name if is_folder else model


def recipe_text(config: RunConfig) -> str:
    """The settings by which every method of a run is trained and calibrated, separated by commas."""
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
    """The folder that holds a run's table."""
    return config.out / "runs" / run_name(config)


def run_name(config: RunConfig) -> str:
    """Model, first methods, seeds and the beginning of the run's key: `nano-gateskip-mod-2more-seed1-3f9a2c1b`.

    The name does not depend on where the run is written or which device computes it. Methods that are trained towards
    a saving come before those they are compared with.
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
    """Write a run's config, the time it began, and what its command needs besides.

    A run that continues with the same command and plugins keeps the time it first began.

    Args:
        computes: Whether anything is computed; if not, an existing `command.json` stays as it is.
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
    if not _file_contains(file, {key: about[key] for key in ("schema", "plugins", "command")}):
        atomic.write_json(file, about)


def _file_contains(file: Path, about: Mapping[str, Any]) -> bool:
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(known, dict) and about.items() <= known.items()


def _safe(part: str) -> str:
    """The part with letters, digits and a few signs only, because a name is used in paths and commands."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", part).strip("-.")[:_LONGEST_PART] or "model"
