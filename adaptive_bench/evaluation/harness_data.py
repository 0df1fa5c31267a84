"""Finds the documents of an lm-eval task: in a given data folder, or in the files that its YAML file names."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES
from lm_eval.tasks._yaml_loader import load_yaml

from adaptive_bench.data import Source, find_place, folder_names
from adaptive_bench.hub import Needed
from adaptive_bench.store.runs import is_output

_EVALUATED = ("test_split", "validation_split")
_SHOWN = ("fewshot_split", "training_split", "validation_split", "test_split")  # in lm-eval's order of preference


def files_of(folder: Path) -> list[Path]:
    """Files in a task's folder and below, without hidden folders of tools, and without runs, which are often written
    into the folder of a plugin that says `folder=Path(__file__).parent`.
    """
    found: list[Path] = []
    for at, below, names in os.walk(folder):
        here = Path(at)
        if is_output(here):
            below[:] = [] if here != folder else [one for one in below if one not in ("records", "runs")]
            names = [] if here != folder else names
        below[:] = [one for one in below if one[0] not in "._"]
        found += (file for name in names if (file := here / name).is_file())
    return found


def files_named(folder: Path) -> set[Path]:
    """The YAML files of a folder, files that they include, and data files that they name, wherever these are."""
    known: set[Path] = set()
    waiting = [file.resolve() for file in files_of(folder) if file.suffix == ".yaml"]
    while waiting:
        file = waiting.pop()
        if file in known or not file.is_file():
            continue
        known.add(file)
        try:
            settings = load_yaml(file, resolve_func=False, recursive=False)
        except (ValueError, yaml.YAMLError):  # not a valid task; lm-eval reports it if the task is used
            continue
        includes = settings.get("include") or []
        waiting += [(file.parent / one).resolve() for one in ([includes] if isinstance(includes, str) else includes)]
        known |= _data_files(settings)
    return known


def reads_files(settings: Mapping[str, Any]) -> bool:
    """Whether a task's data set consists of files that the task names."""
    name = settings.get("dataset_path")
    return isinstance(name, str) and (name in _PACKAGED_DATASETS_MODULES or Path(name).expanduser().is_dir())


def read_anew(target: Path, settings: Mapping[str, Any], yaml_path: Path) -> None:
    """Write a copy of the task file at `yaml_path` that always reads its data files again. `datasets` would cache them
    by their time of change, which an edited file may have kept.
    """
    again = dict(settings.get("dataset_kwargs") or {}) | {"download_mode": "force_redownload"}
    target.write_text(yaml.safe_dump({"include": str(yaml_path), "dataset_kwargs": again}), encoding="utf-8")


def _data_files(settings: Mapping[str, Any]) -> set[Path]:
    found: set[Path] = set()
    for text in _texts([settings.get("dataset_path"), settings.get("dataset_kwargs")]):
        for name in glob.glob(text, recursive=True):  # noqa: PTH207 - `datasets` takes such patterns
            path = Path(name).resolve()
            found |= {file for file in path.rglob("*") if file.is_file()} if path.is_dir() else {path}
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part)


def local_folders(settings: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Folders within a data folder that a task may read; `None` if only the task's code names its data set."""
    if not settings.get("dataset_path"):
        return None
    return tuple(folder_names(str(settings["dataset_path"]), settings.get("dataset_name")))


def reads_data_set(settings: Mapping[str, Any]) -> bool:
    """Whether a task reads a data set that it names, and not through its own code."""
    return "class" not in settings and bool(settings.get("dataset_path"))


def of_hub(settings: Mapping[str, Any]) -> Needed | None:
    """The data set of the hub that a task reads if no data folder is given; `None` if it names none."""
    if not reads_data_set(settings) or reads_files(settings) or "custom_dataset" in settings:
        return None
    source = Source(str(settings["dataset_path"]), configuration=settings.get("dataset_name"))
    splits = (settings.get(name) for name in (*_EVALUATED, "training_split"))
    return source.needed(next((split for split in splits if split), "test"))


def write_local_task(target: Path, settings: Mapping[str, Any], yaml_path: Path, data_dir: Path) -> str | None:
    """Write a copy of the task file at `yaml_path` that reads local documents.

    Splits other than the evaluated one may be missing, since only worked examples need them.

    Args:
        settings: The settings of that file, including the files it includes.

    Returns:
        The split of worked examples, if it is missing, else `None`.

    Raises:
        EnvironmentProblem: The data set has no folder in `data_dir`.
    """
    hub_id, configuration = str(settings["dataset_path"]), settings.get("dataset_name")
    place = find_place(data_dir, hub_id, configuration)
    named = {setting: split for setting in _SHOWN if (split := settings.get(setting))}
    evaluated = next((named[setting] for setting in _EVALUATED if setting in named), None)
    shown = (settings.get("fewshot_config") or {}).get("split") or next(iter(named.values()), None)
    wanted = {split for split in (*named.values(), shown) if split is not None}
    # A copy of the hub's repository has no split files to check, so it counts as complete.
    used = {split for split in wanted if split == evaluated or not place.splits or split in place.splits}
    content: dict[str, Any] = {setting: None for setting, split in named.items() if split not in used}
    content["include"] = str(yaml_path)
    content["dataset_kwargs"] = {"hub_id": hub_id, "configuration": configuration, "splits": sorted(used)}
    function = "custom_dataset: !function adaptive_bench.data.local_splits\n"
    target.write_text(function + yaml.safe_dump(content), encoding="utf-8")
    return None if shown in used else shown
