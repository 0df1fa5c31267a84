"""What the answers to a task depend on beside the model: how it asks and scores, and its local data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.evaluation.drawn import DRAW_SEED
from adaptive_bench.evaluation.harness_data import files_named, files_of
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.source import FLOORS, plugin_digest
from adaptive_bench.store.keys import files_fingerprint
from adaptive_bench.task import Task

DRAWN = "drawn"  # in what a record depends on: its documents were drawn


def task_inputs(task: Task, data_dir: Path | None) -> dict[str, Any]:
    """Digests of what a task is made of, as part of a key. What the hub gives stands in the records themselves."""
    return {"task_code": _definition(task), "local_data": _local_data(task, data_dir)}


def asked_since(task: Task, limit: int | None, num_fewshot: int | None) -> dict[str, Any]:
    """What is asked otherwise than by the first records, as part of the key of those alone that it touches: a limit
    draws documents, and no document is among its own worked examples.
    """
    shots = task.num_fewshot if num_fewshot is None else num_fewshot
    limits = {DRAWN: DRAW_SEED} if limit is not None and not task.mixed else {}
    return limits | ({"shots": "of others"} if shots else {})


def check_inputs(task_name: str, data_dir: Path | None, planned: dict[str, Any]) -> None:
    """Refuse to keep answers to a task that changed while it was asked.

    Args:
        planned: What a sweep was planned with (`DialEvaluation.content`).

    Raises:
        EnvironmentProblem: It did.
    """
    task = find_task(task_name)
    now = task_inputs(task, data_dir)
    if changed := [name for name, value in now.items() if planned[name] != value]:
        newest = max(files_of(task.folder), key=lambda file: file.stat().st_mtime)
        what = {"task_code": f"its files (the newest is {newest})", "local_data": f"its data in {str(data_dir)!r}"}
        raise EnvironmentProblem(
            f"A run asks the questions it planned with, but of the task {task_name!r} "
            f"{' and '.join(what[name] for name in changed)} changed meanwhile. Give the same command again: it asks "
            f"what is there now. What is written meanwhile belongs into another folder."
        )


def _local_data(task: Task, data_dir: Path | None) -> str | None:
    """What stands for the local files a task reads: the digest of their content, or their place if unknown."""
    if data_dir is None or task.data_folders == ():
        return None
    if task.data_folders is None:
        return str(data_dir.resolve())
    files = [file for name in task.data_folders for file in (data_dir / name).rglob("*") if file.is_file()]
    return files_fingerprint(files, data_dir) if files else None


def _definition(task: Task) -> dict[str, Any]:
    """What says what a task asks and how it is scored: of a task of this distribution the versions of the floor and of
    the task, else everything in its folder, data included, and the source that registered it.
    """
    name = task.name.partition(":")[0]
    is_registered = name in registry.names("tasks")
    if is_registered and not registry.is_foreign_task(name):
        files = [file for file in task.other_files if file.suffix != ".py"]
        return {"version": FLOORS["tasks"], "files": files_fingerprint(files)}
    files = [*_files(task.folder, data=is_registered), *task.other_files]
    registered = registry.file_of("tasks", name) if is_registered else None
    code = {file for file in [registered, *files] if is_registered and file is not None and file.suffix == ".py"}
    named = files_named(task.folder) - {file.resolve() for file in files} if is_registered else set()
    return {
        "files": files_fingerprint(files, task.folder),
        "source": [plugin_digest(code)] if code else [],
        **({"named": files_fingerprint(named)} if named else {}),
    }


def _files(folder: Path, *, data: bool) -> list[Path]:
    """Files of a task's folder: its definition, and with `data` whatever else lies there and below."""
    if not data:  # of lm-eval: data sets are not kept beside its YAML files
        return [file for pattern in ("*.yaml", "*.py") for file in folder.glob(pattern)]
    return files_of(folder)
