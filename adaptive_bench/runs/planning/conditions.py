"""What the rows of a run were measured under, the same for every method; by it rows of other runs are told apart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.runs.planning.training_targets import target_axis
from adaptive_bench.runs.planning.training_text import training_tasks
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.store.evaluations import Evaluation
from adaptive_bench.store.keys import USUAL, key_of
from adaptive_bench.tables.comparable import Conditions

# What neither belongs to every method alike nor changes a result.
_NO_RECIPE = {"checkpoint_every", "method_learning_rates", "target", "parallel", "gradient_checkpointing"}


def conditions(sweep: DialEvaluation, evaluation: Evaluation) -> Conditions:
    """The conditions of a sweep's rows, one of whose evaluations this is."""
    data: Mapping[str, Any] = evaluation.data or {}
    definition = sweep.content.get("task_code")  # the part of its key that `task_inputs` gives
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
