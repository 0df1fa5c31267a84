"""Reads the configuration of a run from a preset or a YAML file, with the user's overrides.

A preset (`configs/*.yaml`) or a YAML file gives the values; command-line flags override them. A file may say
`extends: nano` and hold only what differs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from adaptive_bench import registry
from adaptive_bench.config import DATA_VARIABLE, RunConfig, keys
from adaptive_bench.errors import EnvironmentProblem, PluginFault, UsageError, one_line
from adaptive_bench.recipe import ForModels
from adaptive_bench.strict_yaml import read_mapping
from adaptive_bench.validation import rule_of

DEFAULT_PRESET = "nano"


def load_config(
    preset_or_path: str | Path = DEFAULT_PRESET,
    overrides: Mapping[str, Any] | None = None,
    *,
    flags: Mapping[str, str] | None = None,
    reads_data: bool = True,
) -> RunConfig:
    """Read a preset or a YAML file and apply overrides.

    Args:
        preset_or_path: Name of a preset, or path of a YAML file (recognised by its suffix `.yaml` or `.yml`). A file
            that says `extends: nano` changes that preset. It is for any model, unless it names models itself.
        overrides: Values that take precedence over the file, nested like the file: `{"train": {"steps": 10}}`.
        flags: The user's name of an override, by its dotted path: `{"train.steps": "--train-steps"}`.
        reads_data: Whether the data folder must exist; commands that only read results need no data.

    Raises:
        UsageError: A preset or key is unknown (the message suggests one), or a value is out of range.
        EnvironmentProblem: The file or the data folder does not exist or cannot be read.
    """
    path = Path(preset_or_path).expanduser()
    preset = None
    if path.suffix not in {".yaml", ".yml"}:
        preset = str(preset_or_path)
        if path.is_dir() and preset not in registry.names("configs"):
            raise UsageError(f"A config is a preset or a YAML file, got a folder. Name {str(path / 'config.yaml')!r}.")
        path = preset_file(preset)
    read = _read(path)
    # A file that changes a preset is not limited to the preset's models; its author says which models it is for.
    if preset is None and "extends" in (own := read_mapping(path)):
        read["for_models"] = own.get("for_models")
    values = merged({"preset": preset} | read, overrides or {})
    if values.get("data_dir") is None and os.environ.get(DATA_VARIABLE):
        values["data_dir"] = os.environ[DATA_VARIABLE]
    try:
        config = RunConfig.model_validate(values)
    except ValidationError as error:
        raise UsageError(_explained(error, flags or {}, path)) from error
    if reads_data:
        check_data_folder(config.data_dir)
    return config


def check_data_folder(folder: Path | None) -> None:
    """Refuse a folder of local data that does not exist, even if nothing would be read from it.

    Raises:
        EnvironmentProblem: A folder is given but does not exist.
    """
    if folder is not None and not folder.is_dir():
        raise EnvironmentProblem(
            f"The data folder must exist, got {str(folder)!r}. Set --data-dir or {DATA_VARIABLE} to a folder, or leave "
            f"both out to read from the Hugging Face hub."
        )


def _read(path: Path, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read the keys and values of a file; those of the preset that it `extends` are filled in, and so on."""
    values = read_mapping(path)
    base = values.pop("extends", None)
    if base is None:
        return values
    if not isinstance(base, str) or base.endswith((".yaml", ".yml")):
        raise UsageError(
            f"The config {str(path)!r} extends one preset, by its name, got {one_line(str(base), 60)}. Write for "
            f"example extends: nano, and the keys that differ below it."
        )
    if base in above:
        raise UsageError(f"Configs extend presets without going in a circle, got {' -> '.join((*above, base))}.")
    return merged(_read(preset_file(base), (*above, base)), values)


def default_presets() -> dict[str, ForModels]:
    """Return by preset the models that use it if the user names no preset."""
    presets = {}
    for name in registry.names("configs"):
        about = read_mapping(preset_file(name)).get("for_models")
        if about is not None and (models := ForModels.model_validate(about)).by_default:
            presets[name] = models
    return presets


def preset_naming(model: str | None) -> str | None:
    """Return the preset that lists a model by name; without a model, the default preset."""
    if model is None:
        return DEFAULT_PRESET
    return next((name for name, models in default_presets().items() if model in models.names), None)


def preset_file(name: str) -> Path:
    """Return the file of a registered config; anything but a path is a `PluginFault`."""
    registered = registry.get("configs", name)
    if not isinstance(registered, str | Path):
        got = f"{type(registered).__name__} under {name!r} ({registry.origin('configs', name)})"
        raise PluginFault(f"A registered config must be the path of a YAML file, got {got}. Correct the plugin.")
    return Path(registered)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return values overridden by others; mappings are merged, so only the keys in `over` change."""
    values = dict(base)
    for key, value in over.items():
        below = values.get(key)
        values[key] = merged(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return values


def _explained(error: ValidationError, flags: Mapping[str, str], file: Path) -> str:
    """Return what is wrong with a config, each problem by its flag if one was given, otherwise by its key."""
    said: list[str] = []
    for problem in error.errors():
        if problem["type"] == "too_short" and said:
            continue  # pydantic counts only the items that are right
        key = ".".join(map(str, problem["loc"]))
        flag = next((flag for path, flag in flags.items() if f"{key}.".startswith(f"{path}.")), None)
        name = flag or f"The config key {one_line(key, 60)!r} in {file.name}"
        if problem["type"] == "extra_forbidden":
            above, _, last = key.rpartition(".")
            around = [path.removeprefix(f"{above}.") for path in keys() if path.rpartition(".")[0] == above]
            places = [path for path in keys() if path.rpartition(".")[2] == last]
            hint = f"Write it as {' or '.join(places)}." if places else registry.did_you_mean(last, around)
            said.append(f"{name} does not exist. {hint}")
        elif problem["type"] == "missing":
            said.append(f"{name} is needed.")
        elif problem["input"] is None:
            said.append(f"{name} has no value. Write one, or leave the key out.")
        else:
            said.append(f"{name} is wrong: {rule_of(problem)}, got {one_line(str(problem['input']), 100)}.")
    return " ".join(dict.fromkeys(said))
