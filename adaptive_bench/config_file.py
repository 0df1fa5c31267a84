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
        if path.exists() and str(preset_or_path) not in registry.names("configs"):
            of_run = path if path.is_dir() else path.parent
            there = f"Name {of_run / 'config.yaml'}" if (of_run / "config.yaml").is_file() else "Name another one"
            raise UsageError(
                f"A config is the name of a preset or a YAML file, which ends in .yaml, got {str(path)!r}. {there}; "
                f"`adaptive-bench list configs` shows the presets."
            )
        path = preset_file(str(preset_or_path))
        preset = str(preset_or_path)
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
        raise UsageError(_Explanation(overrides or {}, flags or {}, path).of(error)) from error
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
    """Return the file of a registered config.

    Raises:
        PluginFault: A plugin registered something else than a path.
    """
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


class _Explanation:
    """Says what is wrong with a config in the user's terms: by flag if one was given, otherwise by key of the file."""

    def __init__(self, overrides: Mapping[str, Any], flags: Mapping[str, str], path: Path) -> None:
        self.overrides, self.flags, self.path = overrides, flags, path

    def of(self, error: ValidationError) -> str:
        """Return a text that says every problem once."""
        problems = [dict[str, Any](problem) for problem in error.errors()]
        # pydantic also reports a list with wrong items as too short; only the items' errors are shown.
        items = {problem["loc"][:-1] for problem in problems}
        reported = [problem for problem in problems if problem["type"] != "too_short" or problem["loc"] not in items]
        return " ".join(dict.fromkeys(map(self._one, reported)))

    def _one(self, problem: dict[str, Any]) -> str:
        location = [str(part) for part in problem["loc"]]
        key, name = ".".join(location), self._name(location)
        if problem["type"] == "extra_forbidden":
            above = ".".join(location[:-1])
            around = [path.rpartition(".")[2] for path in keys() if path.rpartition(".")[0] == above]
            hint = registry.did_you_mean(location[-1], around if above else [*around, "extends"])
            if elsewhere := [path for path in keys() if location[-1] in (path, path.rpartition(".")[2])]:
                hint = f"Write it as {' or '.join(map(_nested, elsewhere))}."
            return f"No config key is called {one_line(key, 60)!r}{self._where(location)}. {hint}"
        if problem["type"] == "missing":
            where = self._where(location)
            return f"The config key {key!r} is needed{where}. {'Add it to the file' if where else 'Give it too'}."
        if problem["input"] is None:
            return f"{name} is wrong{self._where(location)}: it has no value. Write one, or leave the key out."
        rule = rule_of(problem)
        hint = (
            " Write 0.05 for 5 %." if location[0] in {"levels", "evaluation"} and "less_than" in problem["type"] else ""
        )
        is_typed = isinstance(problem["input"], str) and name.startswith("--")  # text on a command line needs no quotes
        received = one_line(problem["input"] if is_typed else repr(problem["input"]), 100)
        if rule.startswith("takes "):
            return f"{name}{self._where(location)} {rule}, got {received}."
        return f"{name} is wrong{self._where(location)}: {rule}, got {received}.{hint}"

    def _name(self, location: list[str]) -> str:
        for end in range(len(location), 0, -1):
            if self._is_override(location[:end]) and (flag := self.flags.get(".".join(location[:end]))):
                return flag
        return f"The config key {'.'.join(location)!r}"

    def _where(self, location: list[str]) -> str:
        return "" if self._is_override(location) else f" in {self.path.name}"

    def _is_override(self, location: list[str]) -> bool:
        values: Any = self.overrides
        for part in location:
            if not isinstance(values, Mapping):
                return True  # an item of a list in the overrides
            if part not in values:
                return False
            values = values[part]
        return True


def _nested(path: str) -> str:
    """Return a dotted path as the nested key of a config."""
    outer, dot, inner = path.partition(".")
    return f"{{{outer!r}: {_nested(inner) if dot else '...'}}}"
