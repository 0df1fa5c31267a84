"""Registers the model `adaptive` and the tasks of this package with lm-eval, for lm-eval's own functions.

After this module is imported, `lm_eval.simple_evaluate("adaptive", model_args="pretrained=DIR,saving=0.15",
tasks=[...])` finds the model, and with `task_manager=SuiteTasks()` also the tasks. `adaptive-bench lm-eval` is the
command line of lm-eval with both. lm-eval has no entry points for models, so its own script cannot know the name.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.model import CacheHook
from lm_eval.api.registry import register_model
from lm_eval.tasks import TaskManager

from adaptive_bench import registry
from adaptive_bench.data import data_root
from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.documents import keep_apart, shown_split
from adaptive_bench.evaluation.lm_eval_model import AdaptiveLM
from adaptive_bench.evaluation.lookup import expand_tasks, find_task, setting_up
from adaptive_bench.evaluation.stock_tasks import check_task_name, stock_tasks
from adaptive_bench.evaluation.task_files import of_hub, reads_data_set, write_local_task
from adaptive_bench.hub import hub_or_cache
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.hardware import find_device
from adaptive_bench.model.saving import load_tokenizer
from adaptive_bench.store.keys import code_of, folder_digest
from adaptive_bench.task import OpenTask, Task

_DEFAULT_BATCH = 16
NAME = "adaptive"


@register_model(NAME)
class AdaptiveCheckpoint(AdaptiveLM):
    """A saved adaptive model, loaded with its tokenizer.

    Args:
        pretrained: Folder written by `save_pretrained` or a run.
        saving: Share of token-branches to skip.
        dial: Value of the dial, instead of `saving`; without either the dial stays as it was saved.
        spec, calibration: See `AdaptiveModel.from_pretrained`.
        dtype: Dtype of the weights: `float32`, `bfloat16` ...
        batch_size: Sequences in one forward pass; `auto` is 16.
        device: Device: `cpu`, `cuda`, `cuda:1` ...; by default a GPU if there is one.
        max_batch_size: Not used; lm-eval passes it to every model.
    """

    def __init__(
        self,
        pretrained: str | None = None,
        saving: float | None = None,
        dial: float | None = None,
        spec: str | None = None,
        calibration: str | None = "auto",
        dtype: str = "float32",
        batch_size: int | str | None = None,
        device: str | None = None,
        max_batch_size: int | None = None,
        **unknown: object,
    ) -> None:
        if unknown:
            # Without the last one, which is `unknown` itself.
            known = [name for name in inspect.signature(AdaptiveCheckpoint.__init__).parameters if name != "self"][:-1]
            raise UsageError(
                f"The model `adaptive` takes {', '.join(known)}, got {', '.join(unknown)}. Leave out what is not known."
            )
        if pretrained is None:
            raise UsageError(
                "The model `adaptive` is loaded from a folder, got none. Name it: --model_args pretrained=FOLDER."
            )
        if saving is not None and dial is not None:
            raise UsageError(f"A model has one dial, got saving={saving} and dial={dial}. Give one of them.")
        try:
            saving, dial = (None if one is None else float(one) for one in (saving, dial))
        except ValueError as error:
            raise UsageError(f"saving and dial are numbers, but {error}. Give 0.15 for 15 %.") from None
        precision = getattr(torch, dtype, None)
        if not isinstance(precision, torch.dtype):
            raise UsageError(f"dtype is a torch type such as float32 or bfloat16, got {dtype!r}.")
        folder, place = Path(pretrained), find_device(device or "auto")
        model = AdaptiveModel.from_pretrained(folder, spec, calibration=calibration, dtype=precision)
        model.to(place)
        if saving is not None:
            model.saving = saving
        if dial is not None:
            model.dial = dial
        super().__init__(model, load_tokenizer(folder), batch_size=_rows(batch_size))
        self._folder, self._loaded_as = folder, f"{dtype} {calibration}"

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        """Called by lm-eval with the file of `--use_cache`. The file identifies answers by their prompts only, so each
        method, dial and checkpoint gets a separate table in it.
        """
        super().set_cache_hook(cache_hook)
        if (answers := cache_hook.dbdict) is not None:
            spec = self.model.spec
            table = f"{spec} {self.model.dial!r} {self._loaded_as} {folder_digest(self._folder)} {code_of(spec.name)}"
            type(answers)(answers.filename, tablename=table).close()  # creates the table
            answers.tablename = table


def _rows(batch_size: int | str | None) -> int:
    if batch_size is None or str(batch_size).startswith("auto"):
        return _DEFAULT_BATCH
    if not str(batch_size).isdigit() or int(batch_size) < 1:
        raise UsageError(f"batch_size is a number from 1 or auto, got {batch_size!r}.")
    return int(batch_size)


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
        tasks = (registry.get("tasks", name) for name in registry.names("tasks"))
        # Several tasks may share a folder.
        folders = dict.fromkeys(str(task.folder) for task in tasks if isinstance(task, Task))
        root = data_root(None)
        local = {} if root is None else {"data_dir": str(root)}
        super().__init__(verbosity, [*folders, *given], include_defaults, local | (metadata or {}))

    def load(self, task_list: Any) -> Any:
        """See `TaskManager.load`; named tasks also read local data, and no document is among its own worked
        examples.
        """
        names = [task_list] if isinstance(task_list, str) else [one for one in task_list if isinstance(one, str)]
        root = data_root(None)
        with tempfile.TemporaryDirectory() as folder, setting_up(", ".join(names)):
            for number, name in enumerate(names):
                entry = self._index.get(name)
                if root and entry and entry.cfg and entry.yaml_path and reads_data_set(entry.cfg):
                    write_local_task(Path(folder) / f"{number}.yaml", entry.cfg, entry.yaml_path, root)
            # The local copies take the place of the tasks that read the hub.
            self._index |= TaskManager(include_path=folder, include_defaults=False).task_index
            # With a data folder nothing is read from the hub.
            entries = [self._index[name].cfg for name in names if name in self._index and root is None]
            needed = [one for one in map(of_hub, filter(None, entries)) if one is not None]
            with hub_or_cache(*needed) if needed else nullcontext():
                found = super().load(task_list)
        for task in found["tasks"].values():
            keep_apart(task, shown_split(task))
        return found


def suite_names(names: Iterable[str], include_path: str | None = None) -> dict[str, list[str]]:
    """The names to pass to lm-eval, by given name: groups of this package are replaced by their tasks; patterns and
    file paths are left to lm-eval. A name that is unknown, also in the folder `include_path`, is a `UsageError`, and so
    is a task that needs an argument, which lm-eval's command cannot pass.
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
