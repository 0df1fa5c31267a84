"""Loads lm-eval tasks with their documents: from the hub, or from local files if there is a data folder."""

from __future__ import annotations

import glob
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from copy import copy, deepcopy
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import datasets
import lm_eval.api.task
import yaml
from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES
from lm_eval.api.task import ConfigurableTask
from lm_eval.api.task import Task as HarnessTask
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

from adaptive_bench import errors, registry
from adaptive_bench.config import DATA_VARIABLE
from adaptive_bench.data import Source, data_root
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, PluginFault, UsageError, message_of
from adaptive_bench.evaluation.documents import keep_apart, shown_split
from adaptive_bench.hub import Needed, hub_or_cache
from adaptive_bench.store.keys import file_digest
from adaptive_bench.store.runs import is_output
from adaptive_bench.task import DocumentSplit, Task

_EVALUATED = ("test_split", "validation_split")
_SHOWN = ("fewshot_split", "training_split", "validation_split", "test_split")  # in lm-eval's order of preference
_LOGGERS = ("lm_eval", "datasets", "huggingface_hub")


def load_task(task: Task, data_dir: Path | None, num_fewshot: int | None, split: DocumentSplit = "test") -> HarnessTask:
    """The lm-eval task with its documents, ready to be evaluated.

    Args:
        data_dir: Folder in which a data set that the task names is found, by the rule of `adaptive_bench.data.sources`;
            `None` for `ADAPTIVE_BENCH_DATA`, or the hub if that is not set.
        num_fewshot: Worked examples before each question; `None` for the task's own number.
        split: `test` for the documents that lm-eval evaluates, `validation` for separate validation documents.

    Raises:
        UsageError: The task forbids worked examples, or has no validation documents apart from its test documents.
        EnvironmentProblem: The data cannot be read, or lm-eval needs a package that is not installed.
        PluginFault: The registration of a plugin's task contradicts its YAML file.
    """
    stock = task.name.partition(":")[0] not in registry.names("tasks")
    root = data_root(data_dir)
    found, missing = _load(task.harness_name or task.name, task.folder, root, task.argument, _stamps(task, root))
    # An explicit 0, not a missing number, forbids worked examples: lm-eval would keep the 0 and only log that.
    if num_fewshot and stock and found.config.num_fewshot == 0:
        raise UsageError(
            f"lm-eval defines the task {task.name!r} without worked examples, got --num-fewshot {num_fewshot}. "
            f"Leave it out."
        )
    shots = task.num_fewshot if num_fewshot is None else num_fewshot
    if shots and missing:
        raise EnvironmentProblem(
            f"Worked examples of {task.name!r} are drawn from the split {missing!r}, but the local data set has no "
            f"{missing}.jsonl. Put it there, or set --num-fewshot 0."
        )
    loaded = copy(found)
    if not stock:
        check_declared(task, loaded)
    # lm-eval evaluates the test split: validation documents take its place.
    asked = {"test_split": _validation_split(task, loaded)} if split == "validation" else {}
    # Dictionaries are copied too, so that changes by one caller do not reach the others.
    loaded._config = replace(deepcopy(loaded.config), task=task.name, num_fewshot=shots, **asked)
    if shots:
        keep_apart(loaded, shown_split(found))
    return loaded


def _validation_split(task: Task, loaded: HarnessTask) -> str:
    """The split of a task's validation documents: the one it names, else lm-eval's if there is also a test split."""
    split = task.validation_split or (loaded.config.validation_split if loaded.has_test_docs() else None)
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
) -> tuple[HarnessTask, str | None]:
    """The task, and the split of its worked examples if that is missing.

    `stamps` is not read: as a part of the cache's key it makes a task whose files changed load again.
    """
    with quiet(), _uncached(), setting_up(name, folder):
        where: dict[str, Any] = {"include_path": str(folder), "include_defaults": False}
        arguments = {"data_dir": None if data_dir is None else str(data_dir), "argument": argument}
        manager = LocalTasks(data_dir, reads_files_anew=True, metadata=arguments, **where)
        if name not in manager.task_index:
            # `setting_up` makes a message of it.
            raise LookupError(f"{folder} has no readable YAML file that says `task: {name}`")
        task = manager.load(name)["tasks"][name]
        _process_once(task)
        return task, manager.missing_shots.get(name)


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


class LocalTasks(TaskManager):
    """lm-eval's tasks; those that are loaded by name read a folder of local data, or without one the hub or its cache.

    Args:
        reads_files_anew: Read data files that a task names again, even if they seem unchanged.
        settings: Arguments of `TaskManager`.

    Attributes:
        missing_shots: The split of worked examples of each loaded task that has no local file for them.
    """

    def __init__(self, data_dir: Path | None, *, reads_files_anew: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self._data_dir, self._reads_files_anew = data_dir, reads_files_anew
        self.missing_shots: dict[str, str] = {}

    def load(self, task_list: Any) -> Any:
        """See `TaskManager.load`."""
        names = [task_list] if isinstance(task_list, str) else [one for one in task_list if isinstance(one, str)]
        entries = [entry for name in names if (entry := self._index.get(name)) is not None and entry.cfg]
        needed: list[Needed] = []
        with tempfile.TemporaryDirectory() as folder:
            # Copies of task files take the place of those that would read the hub, or files that were read before.
            for number, entry in enumerate(entries):
                settings, copied = entry.cfg, Path(folder) / f"{number}.yaml"
                if self._data_dir is not None and reads_data_set(settings):
                    if missing := write_local_task(copied, settings, entry.yaml_path, self._data_dir):
                        self.missing_shots[entry.name] = missing
                # Tasks with their own class read their data themselves, and may know no `dataset_kwargs`.
                elif self._reads_files_anew and reads_files(settings) and "class" not in settings:
                    # `datasets` would cache them by their time of change, which an edited file may have kept.
                    again = (settings.get("dataset_kwargs") or {}) | {"download_mode": "force_redownload"}
                    copied.write_text(yaml.safe_dump({"include": str(entry.yaml_path), "dataset_kwargs": again}))
                elif self._data_dir is None and (of_hub := needed_of_hub(settings)) is not None:
                    needed.append(of_hub)
            self._index |= TaskManager(include_path=folder, include_defaults=False).task_index
            with hub_or_cache(*needed) if needed else nullcontext():
                return super().load(task_list)


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
        of_plugin = folder is not None and errors.is_watched(str(folder.absolute() / "task.yaml"))
        if of_plugin and not isinstance(error, ImportError):
            raise PluginFault(f"{said}. Correct its YAML file in {folder}, or the code that it names.") from error
        raise EnvironmentProblem(f"{said}. Install what it needs, or choose another task.") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep lm-eval, datasets and the hub client from writing over the progress display: inside the block, log only
    errors and draw no foreign progress bars; restore everything afterwards.
    """
    with ExitStack() as stack:
        for logger in map(logging.getLogger, _LOGGERS):
            # Its own level, not the effective one: restoring that would detach it from the root logger's level.
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        if datasets.is_progress_bar_enabled():
            datasets.disable_progress_bars()
            stack.callback(datasets.enable_progress_bars)
        # lm-eval draws this bar (building requests) unconditionally.
        bar = lm_eval.api.task.tqdm
        stack.callback(setattr, lm_eval.api.task, "tqdm", bar)
        lm_eval.api.task.tqdm = partial(bar, disable=True)
        yield


@contextmanager
def _uncached() -> Iterator[None]:
    """Disable the cache of `datasets`, so that a task's documents are processed by its current code."""
    with ExitStack() as stack:
        if datasets.is_caching_enabled():
            datasets.disable_caching()
            stack.callback(datasets.enable_caching)
        yield


def reads_files(settings: Mapping[str, Any]) -> bool:
    """Whether a task's data set consists of files that the task names."""
    name = settings.get("dataset_path")
    # `json`, `csv`, `parquet` ...: builders of `datasets` that read files, in place of a data set's name.
    return isinstance(name, str) and (name in _PACKAGED_DATASETS_MODULES or Path(name).expanduser().is_dir())


def reads_data_set(settings: Mapping[str, Any]) -> bool:
    """Whether a task reads a data set that it names, and not through its own code."""
    return "class" not in settings and bool(settings.get("dataset_path"))


def needed_of_hub(settings: Mapping[str, Any]) -> Needed | None:
    """The data set of the hub that a task reads if no data folder is given; `None` if it names none."""
    if not reads_data_set(settings) or reads_files(settings) or "custom_dataset" in settings:
        return None
    source = Source(str(settings["dataset_path"]), configuration=settings.get("dataset_name"))
    splits = (settings.get(name) for name in (*_EVALUATED, "training_split"))
    return source.needed(next((split for split in splits if split), "test"))


def write_local_task(target: Path, settings: Mapping[str, Any], yaml_path: Path, data_dir: Path) -> str | None:
    """Write a copy of the task file at `yaml_path`, whose whole settings are given, that reads local documents. Splits
    other than the evaluated one may be missing, since only worked examples need them: theirs is returned if it is.
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
