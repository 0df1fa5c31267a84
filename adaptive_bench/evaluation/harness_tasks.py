"""Extends lm-eval's index of tasks by those of this package and of plugins."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from lm_eval.tasks import TaskManager

from adaptive_bench import registry
from adaptive_bench.data import data_root
from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.harness_data import of_hub, reads_data_set, write_local_task
from adaptive_bench.evaluation.lookup import expand_tasks, find_task, setting_up
from adaptive_bench.evaluation.shots import keep_apart, shown_split
from adaptive_bench.evaluation.stock_tasks import check_task_name, stock_tasks
from adaptive_bench.hub import hub_or_cache
from adaptive_bench.task import OpenTask, Task


class SuiteTasks(TaskManager):
    """lm-eval's tasks, the tasks registered here, and those that the user includes; later ones win over earlier ones.

    If the environment names a data folder, local data is found as in `adaptive-bench run`.
    """

    def __init__(
        self,
        verbosity: str | None = None,
        include_path: str | Path | Sequence[str | Path] | None = None,
        include_defaults: bool = True,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        given = [include_path] if isinstance(include_path, str | Path) else include_path or []
        folders = dict.fromkeys(str(task.folder) for task in _registered().values())
        root = data_root(None)
        local = {} if root is None else {"data_dir": str(root)}
        super().__init__(verbosity, [*folders, *given], include_defaults, local | (metadata or {}))

    def load(self, task_list: Any) -> Any:
        """See `TaskManager.load`; named tasks also read local data, and no document is among its own worked examples.

        Raises:
            EnvironmentProblem: A task's data cannot be read, or it needs a package that is not installed.
        """
        names = [task_list] if isinstance(task_list, str) else [one for one in task_list if isinstance(one, str)]
        root = data_root(None)
        with tempfile.TemporaryDirectory() as folder, setting_up(", ".join(names)):
            for number, name in enumerate(names):
                entry = self._index.get(name)
                if root and entry and entry.cfg and entry.yaml_path and reads_data_set(entry.cfg):
                    write_local_task(Path(folder) / f"{number}.yaml", entry.cfg, entry.yaml_path, root)
            self._index |= TaskManager(include_path=folder, include_defaults=False).task_index
            entries = [self._index[name].cfg for name in names if name in self._index and root is None]
            needed = [one for one in map(of_hub, filter(None, entries)) if one is not None]
            with hub_or_cache(*needed) if needed else nullcontext():
                found = super().load(task_list)
        for task in found["tasks"].values():
            keep_apart(task, shown_split(task))
        return found


def suite_names(names: Iterable[str], include_path: str | None = None) -> dict[str, list[str]]:
    """The names to pass to lm-eval, by given name: groups of this package are replaced by their tasks.

    Patterns and file paths are left to lm-eval.

    Args:
        include_path: A folder with further tasks.

    Raises:
        UsageError: A name is unknown (the message suggests one), or the task needs an argument, which lm-eval's command
            cannot pass.
    """
    included = None if include_path is None else TaskManager(include_path=include_path, include_defaults=False)
    return {name: _meant(name, () if included is None else included.all_tasks) for name in names}


def _meant(name: str, included: Iterable[str]) -> list[str]:
    base = name.partition(":")[0]
    if name in included or name.endswith(".yaml") or Path(name).is_dir():
        return [name]
    if base in registry.names("tasks"):
        if isinstance(registry.get("tasks", base), OpenTask):
            raise UsageError(
                f"lm-eval's command takes tasks that need no argument, got {name!r}. Use `adaptive-bench run`."
            )
        return [task.harness_name or task.name for task in map(find_task, expand_tasks([name]))]
    if any(mark in name for mark in "*?["):
        if not any(fnmatch(known, name) for known in (*registry.names("tasks"), *stock_tasks(), *included)):
            raise UsageError(f"A pattern of task names must fit at least one, got {name!r}. See `list tasks`.")
        return [name]
    check_task_name(name)
    return [name]


def _registered() -> dict[str, Task]:
    """Tasks of this package and of plugins, without groups and tasks that need an argument."""
    found = {name: registry.get("tasks", name) for name in registry.names("tasks")}
    return {name: task for name, task in found.items() if isinstance(task, Task)}
