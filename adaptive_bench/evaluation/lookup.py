"""Finds tasks by name: first those registered here or by plugins, then every task of lm-eval.

A registered task wins over a stock task of the same name, since loading it indexes only its own folder.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from copy import copy, deepcopy
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import datasets
from lm_eval.api.registry import DEFAULT_METRIC_REGISTRY
from lm_eval.api.task import Task as HarnessTask
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

from adaptive_bench import errors, registry
from adaptive_bench.config import DATA_VARIABLE
from adaptive_bench.data import data_root
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, PluginFault, UsageError, message_of
from adaptive_bench.evaluation.documents import keep_apart, shown_split
from adaptive_bench.evaluation.quiet import quiet, uncached
from adaptive_bench.evaluation.stock_tasks import check_task_name, stock_tasks
from adaptive_bench.evaluation.task_files import (
    check_declared,
    files_named,
    files_of,
    is_of_plugin,
    local_folders,
    of_hub,
    read_anew,
    reads_data_set,
    reads_files,
    write_local_task,
)
from adaptive_bench.hub import hub_or_cache
from adaptive_bench.store.keys import file_digest
from adaptive_bench.task import DocumentSplit, OpenTask, Task, TaskGroup, check_registered


def find_task(name: str) -> Task:
    """The task of that name; a stock lm-eval task has no training text. A name that is unknown (the message suggests
    one), of a group, or without an argument that the task needs is a `UsageError`.
    """
    base, colon, argument = name.partition(":")
    if base in registry.names("tasks"):
        return _registered(base, argument if colon else None)
    check_task_name(name)
    return _describe(name)


def expand_tasks(names: Iterable[str]) -> tuple[str, ...]:
    """Task names, with every group (ours or lm-eval's) replaced by its tasks; each name once. An lm-eval group that
    changes settings of its tasks, which a plain name cannot express, is a `UsageError`.
    """
    found: dict[str, None] = {}
    for name in names:
        found |= dict.fromkeys(_members(name, ()))
    return tuple(found)


def load_task(task: Task, data_dir: Path | None, num_fewshot: int | None, split: DocumentSplit = "test") -> HarnessTask:
    """The lm-eval task with its documents, ready to be evaluated.

    A task that names a data set of the hub reads it from there. If a data folder is given, the task instead reads local
    files, found by the rule of `adaptive_bench.data.sources`.

    Args:
        data_dir: Folder with local data files; `None` for `ADAPTIVE_BENCH_DATA`, or the hub if that is not set.
        num_fewshot: Worked examples before each question; `None` for the task's own number.
        split: `test` for the documents that lm-eval evaluates, `validation` for separate validation documents.

    Raises:
        UsageError: The task forbids worked examples, or has no validation documents apart from its test documents.
        EnvironmentProblem: The data cannot be read, or lm-eval needs a package that is not installed.
        PluginFault: The registration of a plugin's task contradicts its YAML file.
    """
    stock = task.name.partition(":")[0] not in registry.names("tasks")
    root = data_root(data_dir)
    found = _load(task.harness_name or task.name, task.folder, root, task.argument, _stamps(task, root))
    # An explicit 0, not a missing number, forbids worked examples: lm-eval would keep the 0 and only log that.
    if num_fewshot and stock and found.task.config.num_fewshot == 0:
        raise UsageError(
            f"lm-eval defines the task {task.name!r} without worked examples, got --num-fewshot {num_fewshot}. "
            f"Leave it out."
        )
    shots = task.num_fewshot if num_fewshot is None else num_fewshot
    if shots and found.missing_shots:
        raise EnvironmentProblem(
            f"Worked examples of {task.name!r} are drawn from the split {found.missing_shots!r}, but the local data "
            f"set has no {found.missing_shots}.jsonl. Put it there, or set --num-fewshot 0."
        )
    loaded = copy(found.task)
    if not stock:
        check_declared(task, loaded)
    # lm-eval evaluates the test split: validation documents take its place.
    asked = {"test_split": _validation_split(task, loaded)} if split == "validation" else {}
    # Dictionaries are copied too, so that changes by one caller do not reach the others.
    loaded._config = replace(deepcopy(loaded.config), task=task.name, num_fewshot=shots, **asked)
    if shots:
        keep_apart(loaded, shown_split(found.task))
    return loaded


def _validation_split(task: Task, loaded: HarnessTask) -> str:
    """The split of a task's validation documents: the one it names, else lm-eval's if there is also a test split."""
    by_harness = loaded.config.validation_split if loaded.has_test_docs() else None
    split = task.validation_split or by_harness
    if split is None:
        raise UsageError(
            f"Choices are made on validation documents, but the task {task.name!r} has none besides those it is tested "
            f"on. Name a task with a validation_split and a test_split in its YAML file."
        )
    if split not in loaded.dataset:
        raise EnvironmentProblem(
            f"Validation documents of {task.name!r} are those of the split {split!r}, but its data has "
            f"{', '.join(map(repr, loaded.dataset))}. Add that split, or choose on another task."
        )
    return split


class _Loaded(NamedTuple):
    """An lm-eval task, and the split of worked examples if it is missing."""

    task: HarnessTask
    missing_shots: str | None


def _stamps(task: Task, data_dir: Path | None) -> tuple[tuple[str, str], ...]:
    """Path and digest of the files of a task and of its local data, to load the task again if they change."""
    folders = [task.folder, *(data_dir / name for name in task.data_folders or () if data_dir is not None)]
    files = {*(file for folder in folders for file in files_of(folder)), *task.other_files}
    if task.name.partition(":")[0] in registry.names("tasks"):
        files |= files_named(task.folder)
    return tuple((str(file), file_digest(file)) for file in sorted(files) if file.is_file())


@lru_cache(maxsize=32)  # more than the tasks of a run, since loading a task takes seconds
def _load(
    name: str, folder: Path, data_dir: Path | None, argument: str, stamps: tuple[tuple[str, str], ...]
) -> _Loaded:
    # `stamps` is not read: as a part of the cache's key it makes a task whose files changed load again.
    metadata = {"data_dir": None if data_dir is None else str(data_dir), "argument": argument}
    with tempfile.TemporaryDirectory() as overrides, quiet(), uncached(), setting_up(name, folder):
        manager = TaskManager(include_path=[str(folder)], include_defaults=False, metadata=metadata)
        if name not in manager.task_index:
            # `setting_up` makes a message of it.
            raise LookupError(f"{folder} has no readable YAML file that says `task: {name}`")
        entry, missing, override = manager.task_index[name], None, Path(overrides) / "task.yaml"
        if data_dir is not None and reads_data_set(entry.cfg):
            missing = write_local_task(override, entry.cfg, entry.yaml_path, data_dir)
        # Tasks with their own class read their data themselves, and may know no `dataset_kwargs`.
        elif reads_files(entry.cfg) and "class" not in entry.cfg:
            read_anew(override, entry.cfg, entry.yaml_path)
        if override.exists():
            manager = TaskManager(include_path=[overrides], include_defaults=False, metadata=metadata)
        needed = None if data_dir is not None else of_hub(entry.cfg)
        with nullcontext() if needed is None else hub_or_cache(needed):
            task = manager.load(name)["tasks"][name]
        _process_once(task)
        return _Loaded(task, missing)


@contextmanager
def setting_up(name: str, folder: Path | None = None) -> Iterator[None]:
    """Turn errors in loading a task into messages that say what to do about its data or packages: a `PluginFault` for a
    plugin's code or YAML file, if the task's folder is known, otherwise an `EnvironmentProblem`.
    """
    try:
        yield
    except AdaptiveBenchError:
        raise
    except (OSError, datasets.exceptions.DatasetsError) as error:
        raise EnvironmentProblem(
            f"The data of the task {name!r} cannot be read: {message_of(error)}. Set --data-dir or "
            f"{DATA_VARIABLE} to a folder that holds it, or connect to the Hugging Face hub."
        ) from error
    except Exception as error:  # a task file runs its own code, which may raise anything
        errors.blame(error, f"The task {name!r} cannot be set up")
        said = f"The task {name!r} cannot be set up: {type(error).__name__}: {message_of(error)}"
        if folder is not None and is_of_plugin(folder) and not isinstance(error, ImportError):
            raise PluginFault(f"{said}. Correct its YAML file in {folder}, or the code that it names.") from error
        raise EnvironmentProblem(f"{said}. Install what it needs, or choose another task.") from error


def _process_once(task: HarnessTask) -> None:
    """Process documents now, since lm-eval would process them again at every access."""
    if (process := task.config.process_docs) is None:
        return
    used = {task.config.training_split, task.config.validation_split, task.config.test_split} & set(task.dataset)
    for split in used:  # other splits may be impossible to process, such as hidden ones without labels
        task.dataset[split] = process(task.dataset[split])
    # Worked examples of a split that is processed now must not be processed again; others still have to be.
    if task.fewshot_cfg.process_docs is process and shown_split(task) in used:
        task.fewshot_cfg = replace(task.fewshot_cfg, process_docs=None)
    task._config = replace(task.config, process_docs=None)


def _registered(name: str, argument: str | None) -> Task:
    thing = check_registered(name, registry.get("tasks", name), registry.origin("tasks", name))
    if isinstance(thing, OpenTask):
        if not argument:
            raise UsageError(
                f"The task {name!r} needs the name of its data after a colon, got nothing. Write for example "
                f"{name}:novels."
            )
        thing = thing.make(argument)
    elif argument is not None:
        raise UsageError(f"The task {name!r} takes nothing after a colon, got {argument!r}. Leave it out.")
    if isinstance(thing, TaskGroup):
        raise UsageError(f"One task is wanted, but {name!r} is a group: {', '.join(thing.members)}. Name one of them.")
    if registry.is_foreign_task(name):
        # Code beside the YAML file, which lm-eval imports, is the plugin's too: its errors are blamed on it.
        errors.watch(thing.folder)
        if thing.name != (name if argument is None else f"{name}:{argument}"):
            raise PluginFault(
                f"A task is registered under its name, got name={thing.name!r} under {name!r} "
                f"({registry.origin('tasks', name)}). Correct one of the two."
            )
    return thing


def _members(name: str, within: tuple[str, ...]) -> Iterator[str]:
    """Names of the tasks that a name stands for, found in the nested groups `within`; a name that is no group stands
    for itself.
    """
    if name in within:
        raise PluginFault(
            f"A group of tasks is no member of itself, got {name!r} in {' in '.join(map(repr, reversed(within)))}. "
            f"Correct the plugin."
        )
    if name.partition(":")[0] in registry.names("tasks"):
        thing = registry.get("tasks", name.partition(":")[0])
        if not isinstance(thing, TaskGroup):
            yield name
            return
        for member in thing.members:
            yield from _members(member, (*within, name))
        return
    if not _is_stock_group(name):
        yield name
        return
    stock = stock_tasks()[name]
    # A tag's tasks were found by the scan; a group lists its own, as names or as settings.
    for member in stock.members if stock.kind == "tag" else _stock_settings(name)["task"]:
        if not isinstance(member, str):
            raise UsageError(
                f"A group stands for its tasks as they are, but lm-eval's group {name!r} changes settings of its "
                f"tasks. Name the tasks, with --num-fewshot where they need it."
            )
        yield from _members(member, (*within, name))


@cache
def _stock_settings(name: str) -> dict[str, Any]:
    """A task's YAML with its includes, functions unresolved, and the file's path under `yaml`; `{}` for a tag."""
    file = stock_tasks()[name].file
    return {} if file is None else load_yaml(Path(file), resolve_func=False, recursive=True) | {"yaml": Path(file)}


def _is_stock_group(name: str) -> bool:
    known = stock_tasks()
    return name in known and known[name].kind != "task"


def _describe(name: str) -> Task:
    if _is_stock_group(name):
        raise UsageError(
            f"One task is wanted, but {name!r} is a group of lm-eval tasks. Name one of its tasks, or use it with "
            f"--tasks, where it stands for all of them."
        )
    settings = _stock_settings(name)
    output = settings.get("output_type", "generate_until")
    # A metric by function is a path here (`/.../utils.f`, as functions are not resolved) and is named by its last part.
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
        training=None,
        num_fewshot=settings.get("num_fewshot") or 0,
        data_folders=local_folders(settings),
        source=str(settings.get("dataset_path") or ""),
    )
