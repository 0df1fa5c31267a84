"""Finds tasks by name: those registered here or by plugins first, then every task lm-eval comes with.

A registered task wins over a stock one of the same name: only its own folder is indexed when it is loaded.
"""

from __future__ import annotations

import math
import tempfile
from copy import copy
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import datasets
import yaml
from lm_eval.api.registry import DEFAULT_METRIC_REGISTRY
from lm_eval.api.task import Task as HarnessTask
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

from adaptive_bench import registry
from adaptive_bench.config import DATA_VARIABLE
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, PluginFault, UsageError, message_of
from adaptive_bench.evaluation.quiet import quiet
from adaptive_bench.evaluation.stock_tasks import check_task_name, stock_tasks
from adaptive_bench.task import Task

# Documents a table shows, or others of the same task that choices (targets, rates, tuning) are made on.
DocumentSplit = Literal["test", "validation"]

# The paper's levels for the two kinds of task.
GENERATIVE_LEVELS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25)
LOGLIKELIHOOD_LEVELS = (0.0, 0.15, 0.3, 0.45, 0.6)


def find_task(name: str) -> Task:
    """The task of that name; a stock lm-eval task gets the paper's levels and no training text.

    Raises:
        UsageError: Nobody knows the name (the message suggests one), or it names a group of tasks.
    """
    if name in registry.names("tasks"):
        return _registered(name)
    check_task_name(name)
    return _describe(name)


def _registered(name: str) -> Task:
    found = registry.get("tasks", name)
    if not isinstance(found, Task):
        raise PluginFault(
            f"What is registered as a task is an adaptive_bench.task.Task, got {type(found).__name__} under {name!r} "
            f"({registry.origin('tasks', name)}). Correct the plugin."
        )
    return found


def load_task(task: Task, data_dir: Path | None, num_fewshot: int | None, split: DocumentSplit = "test") -> HarnessTask:
    """The lm-eval task with its documents, ready to be evaluated.

    A stock task reads its data set from the hub, unless `data_dir` holds a folder with the last part of the data set's
    name (`baber/piqa` is `piqa`; a configuration other than `default` and `main` is a folder in it).

    Args:
        task: A task that `find_task` gave.
        data_dir: Folder with local data files.
        num_fewshot: Worked examples before each question; `None` for the task's own number.
        split: `test` is whatever lm-eval evaluates; `validation` the task's validation documents beside its test set.

    Raises:
        UsageError: The task forbids worked examples, or has no validation documents beside those it is tested on.
        EnvironmentProblem: The data cannot be read, or lm-eval needs a package that is not installed.
    """
    stock = task.name not in registry.names("tasks")
    loaded = _load(task.name, task.folder, data_dir, stock)
    if num_fewshot and stock and loaded.config.num_fewshot == 0:
        raise UsageError(
            f"lm-eval defines the task {task.name!r} without worked examples, got --num-fewshot {num_fewshot}. "
            f"Leave it out."
        )
    if split == "validation" and not (loaded.has_test_docs() and loaded.has_validation_docs()):
        raise UsageError(
            f"Choices are made on validation documents, but the task {task.name!r} has none beside those it is tested "
            f"on. Name a task with a validation_split and a test_split in its YAML file."
        )
    loaded = copy(loaded)
    chosen = {"test_split": None} if split == "validation" else {}  # without one lm-eval takes the validation split
    loaded._config = replace(
        loaded.config, num_fewshot=task.num_fewshot if num_fewshot is None else num_fewshot, **chosen
    )
    return loaded


@lru_cache(maxsize=8)
def _load(name: str, folder: Path, data_dir: Path | None, stock: bool) -> HarnessTask:
    with tempfile.TemporaryDirectory() as overrides, quiet():
        paths = [str(folder)]
        if stock and data_dir is not None:
            _redirect(name, data_dir, Path(overrides))
            paths.append(overrides)
        metadata: dict[str, Any] = {"data_dir": None if data_dir is None else str(data_dir)}
        manager = TaskManager(include_path=list(paths), include_defaults=False, metadata=metadata)
        if name not in manager.task_index:
            raise EnvironmentProblem(
                f"The folder of a task holds a YAML file that says `task: {name}`, but {folder} has none that can be "
                f"read. Reinstall the package that registers the task."
            )
        return _read(manager, name)


def _read(manager: TaskManager, name: str) -> HarnessTask:
    try:
        return manager.load(name)["tasks"][name]
    except AdaptiveBenchError:
        raise
    except (OSError, datasets.exceptions.DatasetsError) as error:
        raise EnvironmentProblem(
            f"The data of the task {name!r} cannot be read: {message_of(error)}. Set --data-dir or "
            f"{DATA_VARIABLE} to a folder that holds it, or connect to the Hugging Face hub."
        ) from error
    except Exception as error:  # a task file runs code of its own, which may raise anything
        raise EnvironmentProblem(
            f"The task {name!r} cannot be set up: {type(error).__name__}: {message_of(error)}. Install what "
            f"it needs, or choose another task."
        ) from error


@cache
def _stock_settings(name: str) -> dict[str, Any]:
    """A task's YAML with what it includes, functions unresolved, and under `yaml` the file; `{}` for a tag."""
    file = stock_tasks()[name].file
    return {} if file is None else load_yaml(Path(file), resolve_func=False, recursive=True) | {"yaml": Path(file)}


def _describe(name: str) -> Task:
    settings = _stock_settings(name)
    if stock_tasks()[name].kind != "task":
        raise UsageError(
            f"A task is evaluated by itself, but {name!r} is a group of lm-eval tasks. Name one of its tasks."
        )
    output = settings.get("output_type", "generate_until")
    listed = [entry["metric"] for entry in settings.get("metric_list") or []] or DEFAULT_METRIC_REGISTRY[output]
    filters = [entry["name"] for entry in settings.get("filter_list") or []] or ["none"]
    generative = output == "generate_until"
    return Task(
        name=name,
        description=f"lm-eval task of the data set {settings.get('dataset_path', 'named in its own code')}",
        kind="generative" if generative else "loglikelihood",
        folder=settings["yaml"].parent,
        metrics=tuple(f"{metric.rpartition('.')[2]},{name}" for metric in listed for name in filters),
        chance=math.nan,
        levels=GENERATIVE_LEVELS if generative else LOGLIKELIHOOD_LEVELS,
        training=None,
        num_fewshot=settings.get("num_fewshot") or 0,
        data_folders=(_local_name(settings),) if settings.get("dataset_path") else None,
    )


def _local_name(settings: dict[str, Any]) -> str:
    return str(settings["dataset_path"]).rpartition("/")[2]


def _redirect(name: str, data_dir: Path, overrides: Path) -> None:
    """Write a task file that is the stock one with a local data set, if there is one."""
    settings = _stock_settings(name)
    if not settings.get("dataset_path"):
        return
    folder = data_dir / _local_name(settings)
    configuration = settings.get("dataset_name")
    if configuration not in (None, "default", "main"):
        folder = folder / str(configuration)
    if folder.is_dir():
        content = {"include": str(settings["yaml"]), "dataset_path": str(folder.resolve()), "dataset_name": None}
        (overrides / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
