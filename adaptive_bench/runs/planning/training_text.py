"""The text a run trains and calibrates on: equal shares of the tasks it trains on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import cycle, islice, zip_longest
from typing import Literal

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.data import MissingData
from adaptive_bench.errors import EnvironmentProblem, PluginFault, UsageError
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.progress import Reporter
from adaptive_bench.store.keys import examples_fingerprint
from adaptive_bench.task import Example, ExampleRequest, Task

Split = Literal["train", "calibration"]
SITE_EXAMPLES = 8
PRICING_EXAMPLES = 64  # costs of a method hardly differ from text to text


def training_tasks(config: RunConfig) -> list[Task]:
    """The tasks of `train_on`, or every selected task that has training text; none need have any where there are no
    steps to train.

    Raises:
        UsageError: A task of `train_on` has none, or nothing would be left to train on.
    """
    tasks = [find_task(name) for name in config.train_on or config.tasks]
    without = [task.name for task in tasks if task.training is None]
    if without and (config.train_on or (config.train.steps and len(without) == len(tasks))):
        raise UsageError(
            f"Training needs tasks with training text, but {', '.join(without)} has none. Name one that has with "
            f"--train-on, for example --train-on nano_math."
        )
    return [task for task in tasks if task.training is not None]


def draw_training(config: RunConfig, seed: int, reporter: Reporter) -> list[Example]:
    """Training text, as many examples as the training will see, the same number from every task.

    No steps need none. A task with less text repeats it, said aloud. The tasks are not mixed yet: the seeded order of
    training does that.

    Raises:
        EnvironmentProblem: The data of a task cannot be read or is empty.
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
    """Held-out training text for the thresholds a task is evaluated with; never trained on, never tested on.

    It is the task's own where a task is given, it has text and the recipe says so; else equal shares of all that have.
    There is none where no steps are trained and a folder of local data has nothing to train on: whether a method misses
    it is seen before anything is computed (`checks.calibration`).

    Raises:
        EnvironmentProblem: The data of a task cannot be read or is empty.
    """
    try:
        return read_calibration(config, seed, task_name)
    except MissingData:
        if config.train.steps or config.train_on:
            raise
        return []


def read_calibration(config: RunConfig, seed: int, task_name: str | None = None) -> list[Example]:
    """The same for whoever cannot do without.

    Raises:
        MissingData: A folder of local data has no such text.
        EnvironmentProblem: The data of a task cannot be read or is empty.
    """
    task = find_task(task_name) if task_name and config.evaluation.calibration == "task" else None
    own = [task] if task and task.training else None
    drawn = _draw(config, "calibration", config.evaluation.calibration_examples, seed, own)
    return [example for _, task_examples, _ in drawn for example in task_examples]


def draw_flop_calibration_text(config: RunConfig, seed: int) -> list[Example]:
    """Held-out training text, equal shares of all tasks, on which a target becomes the end of a method's schedule.

    Raises:
        EnvironmentProblem: The data of a task cannot be read or is empty.
    """
    drawn = _draw(config, "calibration", PRICING_EXAMPLES, seed)
    return [example for _, task_examples, _ in drawn for example in task_examples]


def draw_site_text(config: RunConfig) -> list[Example]:
    """Held-out training text on which sites are measured: for all seeds the same, an example of each task in turn; none
    where there is no such text.

    Raises:
        EnvironmentProblem: The data of a task cannot be read or is empty.
    """
    try:
        drawn = [examples for _, examples, _ in _draw(config, "calibration", SITE_EXAMPLES, seed=1)]
    except MissingData:
        if config.train.steps or config.train_on:
            raise
        return []
    return [example for some in zip_longest(*drawn) for example in some if example is not None]


def as_planned(examples: list[Example], fingerprint: str) -> list[Example]:
    """Text that was drawn again, if it is the text that a run was planned with.

    Raises:
        EnvironmentProblem: It is not.
    """
    if (now := examples_fingerprint(examples)) != fingerprint:
        raise EnvironmentProblem(
            f"A run trains and calibrates on the text that it planned with, but the data changed since (planned "
            f"{fingerprint[-8:]}, now {now[-8:]}). Give the same command again: it plans with what is there now."
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
                    f"none for {split!r}. Correct the plugin; a task without training text has training=None."
                )
            raise EnvironmentProblem(f"The task {task.name!r} gave no {split} text. Check --data-dir.")
        yield task, task_examples, share
