"""Draws the text that a run trains and calibrates on, in equal shares from its tasks, and digests task inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import cycle, islice, zip_longest
from pathlib import Path
from typing import Any, Literal

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.data.sources import MissingData
from adaptive_bench.errors import EnvironmentProblem, PluginFault, UsageError
from adaptive_bench.evaluation.documents import DRAW_SEED
from adaptive_bench.evaluation.loading import files_named, files_of
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.progress import Reporter
from adaptive_bench.store.keys import FLOORS, examples_fingerprint, files_fingerprint, plugin_digest
from adaptive_bench.task import Example, ExampleRequest, Task

Split = Literal["train", "calibration"]
SITE_EXAMPLES = 8
PRICING_EXAMPLES = 64  # few suffice, because costs of a method hardly differ from text to text
DRAWN = "drawn"  # entry in the key of a record whose documents were drawn at random


def training_tasks(config: RunConfig) -> list[Task]:
    """The tasks of `train_on`, or else every selected task that has training text.

    Without training steps, the selected tasks need not have any.
    """
    tasks = [find_task(name) for name in config.train_on or config.tasks]
    without = [task.name for task in tasks if task.training is None]
    if without and (config.train_on or (config.train.steps and len(without) == len(tasks))):
        raise UsageError(
            f"Training needs tasks with training text, but {', '.join(without)} has none. Name one that has some with "
            f"--train-on, for example --train-on nano_math."
        )
    return [task for task in tasks if task.training is not None]


def draw_training(config: RunConfig, seed: int, reporter: Reporter) -> list[Example]:
    """Draw as many training examples as the training will see, the same number from every task.

    Without steps there are none. A task with less text repeats it, and the reporter is told. The tasks are not mixed
    yet; the seeded order of the training does that.
    """
    wanted = config.train.steps * config.train.batch_size
    if not wanted:
        return []
    examples: list[Example] = []
    for task, task_examples, share in _draw(config, "train", wanted, seed):
        if not task_examples[0].prompt:
            examples += task_examples  # documents of a corpus: packed into sequences later
            continue
        if len(task_examples) < share:
            reporter.line(f"{task.name} has {len(task_examples)} training examples, {share} are wanted: they repeat.")
        examples += islice(cycle(task_examples), share)
    return examples


def draw_calibration(config: RunConfig, seed: int, task_name: str | None = None) -> list[Example]:
    """Draw held-out training text for calibrating thresholds; it is never trained on and never tested on.

    The text is the task's own if a task is given, has training text, and the recipe calibrates by task. Otherwise it
    consists of equal shares of all tasks that have training text. The list is empty if nothing is trained and a folder
    of local data has no such text.
    """
    task = find_task(task_name) if task_name and config.evaluation.calibration == "task" else None
    own = [task] if task and task.training else None
    return [one for some in _held_out(config, config.evaluation.calibration_examples, seed, own) for one in some]


def draw_flop_calibration_text(config: RunConfig, seed: int) -> list[Example]:
    """Draw held-out training text, in equal shares of all tasks, for turning a target into the end of a schedule."""
    drawn = _draw(config, "calibration", PRICING_EXAMPLES, seed)
    return [example for _, task_examples, _ in drawn for example in task_examples]


def draw_site_text(config: RunConfig) -> list[Example]:
    """Draw held-out training text for measuring sites: the same for all seeds, with an example of each task in turn.

    The list is empty if there is no such text.
    """
    drawn = _held_out(config, SITE_EXAMPLES, seed=1)
    return [example for some in zip_longest(*drawn) for example in some if example is not None]


def _held_out(config: RunConfig, wanted: int, seed: int, tasks: list[Task] | None = None) -> list[list[Example]]:
    """Held-out text of each task; empty if nothing is trained and a folder of local data has none."""
    try:
        return [examples for _, examples, _ in _draw(config, "calibration", wanted, seed, tasks)]
    except MissingData:
        if config.train.steps or config.train_on:
            raise
        return []


def as_planned(examples: list[Example], fingerprint: str) -> list[Example]:
    """Return text that was drawn again, if it is still the text that the run was planned with."""
    if (now := examples_fingerprint(examples)) != fingerprint:
        raise EnvironmentProblem(
            f"A run trains and calibrates on the text it was planned with, but the data has changed since (planned "
            f"{fingerprint[-8:]}, now {now[-8:]}). Give the same command again to plan with the present data."
        )
    return examples


def _draw(
    config: RunConfig, split: Split, wanted: int, seed: int, tasks: list[Task] | None = None
) -> Iterator[tuple[Task, list[Example], int]]:
    tasks = training_tasks(config) if tasks is None else tasks
    share = math.ceil(wanted / max(1, len(tasks)))
    for task in tasks:
        task_examples = task.examples(ExampleRequest(split, share, seed, config.data_dir, config.train.max_length))
        if not task_examples:
            if registry.is_foreign_task(task.name):
                where = registry.origin("tasks", task.name.partition(":")[0])
                raise PluginFault(
                    f"A task with a training function gives examples of each split, but {task.name!r} ({where}) gave "
                    f"none for {split!r}. Give it more training rows, some in a hundred are for calibration; a "
                    f"task without training text has training=None."
                )
            raise EnvironmentProblem(f"The task {task.name!r} gave no {split} text. Check --data-dir.")
        yield task, task_examples, share


def task_inputs(task: Task, data_dir: Path | None) -> dict[str, Any]:
    """Digests of a task's definition and local data, as part of a key.

    Data from the hub is not in the key; its digests stand in the records.
    """
    return {"task_code": _definition(task), "local_data": _local_data(task, data_dir)}


def asked_since(task: Task, limit: int | None, num_fewshot: int | None) -> dict[str, Any]:
    """Key entries for later changes in what is asked: a limit draws documents at random, and no document is among its
    own worked examples.

    An entry is added only to keys that the change affects, so that other records keep theirs.
    """
    shots = task.num_fewshot if num_fewshot is None else num_fewshot
    limits = {DRAWN: DRAW_SEED} if limit is not None and not task.mixed else {}
    return limits | ({"shots": "of others"} if shots else {})


def check_inputs(task_name: str, data_dir: Path | None, planned: dict[str, Any]) -> None:
    """Refuse answers to a task that is no longer as it was planned (`DialEvaluation.content`)."""
    task = find_task(task_name)
    now = task_inputs(task, data_dir)
    if changed := [name for name, value in now.items() if planned[name] != value]:
        newest = max(files_of(task.folder), key=lambda file: file.stat().st_mtime)
        what = {"task_code": f"its files (the newest is {newest})", "local_data": f"its data in {str(data_dir)!r}"}
        raise EnvironmentProblem(
            f"A run asks the questions it was planned with, but of the task {task_name!r} "
            f"{' and '.join(what[name] for name in changed)} changed meanwhile. Give the same command again to ask "
            f"the present questions, and write other files into another folder during a run."
        )


def _local_data(task: Task, data_dir: Path | None) -> str | None:
    """What identifies the local files a task reads: a digest of their content, or the folder if they are not known."""
    if data_dir is None or task.data_folders == ():
        return None
    if task.data_folders is None:
        return str(data_dir.resolve())
    files = [file for name in task.data_folders for file in (data_dir / name).rglob("*") if file.is_file()]
    return files_fingerprint(files, data_dir) if files else None


def _definition(task: Task) -> dict[str, Any]:
    """What identifies what a task asks and how it is scored.

    For a task of this distribution this is the version of all its tasks and the digest of its `other_files` that are
    not Python. For any other task it is everything in the task's folder, data included, and the source that registered
    it.
    """
    name = task.name.partition(":")[0]
    is_registered = name in registry.names("tasks")
    if is_registered and not registry.is_foreign_task(name):
        # Python code of ours is in the version.
        files = [file for file in task.other_files if file.suffix != ".py"]
        return {"version": FLOORS["tasks"], "files": files_fingerprint(files)}
    if not is_registered:  # a task of lm-eval keeps no data beside its YAML files
        files = [file for pattern in ("*.yaml", "*.py") for file in task.folder.glob(pattern)] + [*task.other_files]
        return {"files": files_fingerprint(files, task.folder), "source": []}
    files = [*files_of(task.folder), *task.other_files]
    code = {file for file in [registry.file_of("tasks", name), *files] if file is not None and file.suffix == ".py"}
    named = files_named(task.folder) - {file.resolve() for file in files}
    return {
        "files": files_fingerprint(files, task.folder),
        "source": [plugin_digest(code)] if code else [],
        **({"named": files_fingerprint(named)} if named else {}),
    }
