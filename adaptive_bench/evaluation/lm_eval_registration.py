"""Registers the model `adaptive` and the tasks of this package with lm-eval, for lm-eval's own functions.

After this module is imported, `lm_eval.simple_evaluate("adaptive", model_args="pretrained=DIR,saving=0.15",
tasks=[...])` finds the model, and with `task_manager=SuiteTasks()` also the tasks. `adaptive-bench lm-eval` is the
command line of lm-eval with both. lm-eval has no entry points for models, so its own script cannot know the name.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.model import CacheHook
from lm_eval.api.registry import register_model

from adaptive_bench import registry
from adaptive_bench.data import data_root
from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.documents import keep_apart, shown_split
from adaptive_bench.evaluation.lm_eval_model import AdaptiveLM
from adaptive_bench.evaluation.loading import LocalTasks, setting_up
from adaptive_bench.hardware import find_device
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.saving import load_tokenizer
from adaptive_bench.store.keys import code_of, folder_digest
from adaptive_bench.task import Task

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
            known = list(inspect.signature(AdaptiveCheckpoint).parameters)[:-1]  # the last one is `unknown` itself
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


class SuiteTasks(LocalTasks):
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
        where: dict[str, Any] = {"include_path": [*folders, *given], "include_defaults": include_defaults}
        super().__init__(root, verbosity=verbosity, metadata=local | (metadata or {}), **where)

    def load(self, task_list: Any) -> Any:
        """See `TaskManager.load`; no document is among its own worked examples."""
        names = [task_list] if isinstance(task_list, str) else [one for one in task_list if isinstance(one, str)]
        with setting_up(", ".join(names)):
            found = super().load(task_list)
        for task in found["tasks"].values():
            keep_apart(task, shown_split(task))
        return found
