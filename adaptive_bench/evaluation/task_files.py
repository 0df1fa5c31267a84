"""Reads the YAML files of lm-eval tasks: where documents come from, and whether the registration agrees."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES
from lm_eval.api.task import ConfigurableTask
from lm_eval.api.task import Task as HarnessTask
from lm_eval.tasks._yaml_loader import load_yaml

from adaptive_bench.data import Source
from adaptive_bench.errors import PluginFault, is_watched
from adaptive_bench.hub import Needed
from adaptive_bench.store.runs import is_output
from adaptive_bench.task import Task

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
            # Assigned in place: this is how `os.walk` learns where not to go.
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
    # `json`, `csv`, `parquet` ...: builders of `datasets` that read files, in place of a data set's name.
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
    return Source(str(settings["dataset_path"]), configuration=settings.get("dataset_name")).folders


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
    """Write a copy of the task file at `yaml_path`, whose whole settings are given, that reads local documents. Splits
    other than the evaluated one may be missing, since only worked examples need them.

    Returns:
        The split of worked examples, if it is missing, else `None`.
    """
    hub_id, configuration = str(settings["dataset_path"]), settings.get("dataset_name")
    place = Source(hub_id, configuration=configuration).place(data_dir)
    named = {setting: split for setting in _SHOWN if (split := settings.get(setting))}
    evaluated = next((named[setting] for setting in _EVALUATED if setting in named), None)
    # `named` is in lm-eval's order of preference, so its first split is that of worked examples.
    shown = (settings.get("fewshot_config") or {}).get("split") or next(iter(named.values()), None)
    wanted = {split for split in (*named.values(), shown) if split is not None}
    # A copy of the hub's repository has no split files to check, so it counts as complete.
    used = {split for split in wanted if split == evaluated or not place.splits or split in place.splits}
    # Included values stay unless they are overwritten: with nothing, for splits that are not there.
    content: dict[str, Any] = {setting: None for setting, split in named.items() if split not in used}
    content["include"] = str(yaml_path)
    content["dataset_kwargs"] = {"hub_id": hub_id, "configuration": configuration, "splits": sorted(used)}
    # As text, since `safe_dump` has no tag for functions.
    function = "custom_dataset: !function adaptive_bench.data.sources.local_splits\n"
    target.write_text(function + yaml.safe_dump(content), encoding="utf-8")
    return None if shown in used else shown


def check_declared(task: Task, loaded: HarnessTask) -> None:
    """Compare the registration of a task with its YAML file, before anything is computed; a contradiction is a
    `PluginFault`. The headline metric of a task with its own `process_results` is not checked, since its metrics are
    unknown; nor is one by a function, which may give several metrics.
    """
    kind = "generative" if loaded.OUTPUT_TYPE == "generate_until" else "loglikelihood"
    if task.kind != kind:
        raise PluginFault(
            f"The kind of a task is that of its YAML file, but the task {task.name!r} is registered as {task.kind!r} "
            f"and its file says `output_type: {loaded.OUTPUT_TYPE}`, which is {kind!r}. Correct one of the two."
        )
    tested = loaded.config.test_split or loaded.config.validation_split
    if task.validation_split is not None and task.validation_split == tested:
        raise PluginFault(
            f"validation_split of the task {task.name!r} names other documents than those it is tested on, got "
            f"{tested!r}, the tested split. Correct the plugin: name another split, or None."
        )
    if type(loaded) is not ConfigurableTask or callable(loaded.config.process_results):
        return
    by_function = any(callable(one.get("metric")) for one in loaded.config.metric_list or [])
    metric, _, by = task.metrics[0].partition(",")
    filters = [one.name for one in loaded._filters]
    known = metric in loaded._metric_fn_list or (kind == "generative" and by_function)
    if not known or by not in filters:
        given = ", ".join(repr(f"{one},{name}") for one in sorted(loaded._metric_fn_list) for name in filters)
        raise PluginFault(
            f"The headline metric of a task is one that lm-eval gives for its YAML file, metric and filter with a "
            f"comma between them, but the task {task.name!r} has {task.metrics[0]!r} first, and its file gives "
            f"{given or 'none'}. Correct its metrics, or the metric_list and filter_list of the file."
        )


def is_of_plugin(folder: Path) -> bool:
    """Whether a task's folder belongs to a plugin."""
    return is_watched(str(folder.absolute() / "task.yaml"))
