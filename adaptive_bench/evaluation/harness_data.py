"""Where an lm-eval task of a YAML file gets its documents: from local files, if a data folder is given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from adaptive_bench.data import find_place, folder_names

_EVALUATED = ("test_split", "validation_split")
_SHOWN = ("fewshot_split", "training_split", "validation_split", "test_split")  # in lm-eval's order of preference


def local_folders(settings: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Folders of a data folder that a task may read; `None` if its data set is named in code only."""
    if not settings.get("dataset_path"):
        return None
    return tuple(folder_names(str(settings["dataset_path"]), settings.get("dataset_name")))


def reads_data_set(settings: Mapping[str, Any]) -> bool:
    """Whether a task reads a data set that it names, and not through code of its own."""
    return "class" not in settings and bool(settings.get("dataset_path"))


def write_local_task(target: Path, settings: Mapping[str, Any], yaml_path: Path, data_dir: Path) -> str | None:
    """Write a task file that is the one at `yaml_path`, with local documents.

    Only worked examples need more than the evaluated split, so the others may be missing.

    Args:
        settings: What the file at `yaml_path` says, with the files it includes.

    Returns:
        The missing split that worked examples would be drawn from, or `None`.

    Raises:
        EnvironmentProblem: The data set has no folder in `data_dir`.
    """
    hub_id, configuration = str(settings["dataset_path"]), settings.get("dataset_name")
    place = find_place(data_dir, hub_id, configuration)
    named = {setting: split for setting in _SHOWN if (split := settings.get(setting))}
    evaluated = next((named[setting] for setting in _EVALUATED if setting in named), None)
    shown = (settings.get("fewshot_config") or {}).get("split") or next(iter(named.values()), None)
    wanted = {split for split in (*named.values(), shown) if split is not None}
    # A copy of the hub's repository has no split files to look at; it is taken to be whole.
    used = {split for split in wanted if split == evaluated or not place.splits or split in place.splits}
    content: dict[str, Any] = {setting: None for setting, split in named.items() if split not in used}
    content["include"] = str(yaml_path)
    content["dataset_kwargs"] = {"hub_id": hub_id, "configuration": configuration, "splits": sorted(used)}
    function = "custom_dataset: !function adaptive_bench.data.local_splits\n"
    target.write_text(function + yaml.safe_dump(content), encoding="utf-8")
    return None if shown in used else shown
