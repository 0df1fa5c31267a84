"""Checks that a task's registration agrees with its YAML file: the file exists, and has that kind and that metric."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml
from lm_eval.api.task import ConfigurableTask
from lm_eval.api.task import Task as HarnessTask
from lm_eval.tasks._yaml_loader import load_yaml

from adaptive_bench import error_origin
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, PluginFault, message_of, one_line
from adaptive_bench.evaluation.harness_data import files_of
from adaptive_bench.task import Task

# Metrics of lm-eval by kind of request, for kinds with a fixed list, whatever else a YAML file names.
_OF_OUTPUT = {
    "loglikelihood": {"perplexity", "acc"},
    "loglikelihood_rolling": {"word_perplexity", "byte_perplexity", "bits_per_byte"},
    "multiple_choice": {
        *("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match", "f1", "mcc", "brier_score", "likelihood")
    },
}


def check_declared(task: Task, loaded: HarnessTask) -> None:
    """Compare the registration of a task with its YAML file, before anything is computed.

    Raises:
        PluginFault: The registration contradicts the file.
    """
    _check_kind(task, loaded)
    _check_headline(task, loaded)
    _check_validation_split(task, loaded)


def _check_kind(task: Task, loaded: HarnessTask) -> None:
    kind = "generative" if loaded.OUTPUT_TYPE == "generate_until" else "loglikelihood"
    if task.kind != kind:
        raise PluginFault(
            f"The kind of a task is that of its YAML file, but the task {task.name!r} is registered as {task.kind!r} "
            f"and its file says `output_type: {loaded.OUTPUT_TYPE}`, which is {kind!r}. Correct one of the two."
        )


def _check_headline(task: Task, loaded: HarnessTask) -> None:
    """Check the headline metric. A task with its own `process_results` is not checked, since its metrics are unknown;
    nor is a metric that is a function, which may give several metrics.
    """
    if type(loaded) is not ConfigurableTask or callable(loaded.config.process_results):
        return
    listed = [one.get("metric") for one in loaded.config.metric_list or []]
    metrics = set(loaded._metric_fn_list) & _OF_OUTPUT.get(loaded.OUTPUT_TYPE, set(loaded._metric_fn_list))
    filters = [one.name for one in loaded._filters]
    metric, _, by = task.metrics[0].partition(",")
    known = metric in metrics or (loaded.OUTPUT_TYPE == "generate_until" and any(map(callable, listed)))
    if not known or by not in filters:
        given = ", ".join(repr(f"{one},{name}") for one in sorted(metrics) for name in filters) or "none"
        raise PluginFault(
            f"The headline metric of a task is one that lm-eval gives for its YAML file, metric and filter with a "
            f"comma between them, but the task {task.name!r} has {task.metrics[0]!r} first, and its file gives "
            f"{given}. Correct its metrics, or the metric_list and filter_list of the file."
        )


def _check_validation_split(task: Task, loaded: HarnessTask) -> None:
    tested = loaded.config.test_split or loaded.config.validation_split
    if task.validation_split is not None and task.validation_split == tested:
        raise PluginFault(
            f"validation_split of the task {task.name!r} names other documents than those it is tested on, got "
            f"{tested!r}, the tested split. Correct the plugin: name another split, or None."
        )


def without_file(name: str, folder: Path) -> AdaptiveBenchError:
    """The error that a task's folder has no readable YAML file of that name."""
    said = f"The folder of a task holds a YAML file that says `task: {name}`, but {folder} has none that can be read"
    if not is_of_plugin(folder):
        return EnvironmentProblem(f"{said}. Reinstall the package that registers the task.")
    found = "; ".join(_read(folder)) if folder.is_dir() else "there is no such folder"
    return PluginFault(f"{said} ({found or 'it has no YAML file'}). Correct the plugin.")


def is_of_plugin(folder: Path) -> bool:
    """Whether a task's folder belongs to a plugin."""
    return error_origin.is_watched(str(folder.absolute() / "task.yaml"))


def _read(folder: Path) -> Iterator[str]:
    """For each YAML file in a folder, the task it names, or why it cannot be read."""
    for file in sorted(one for one in files_of(folder) if one.suffix == ".yaml"):
        try:
            named = load_yaml(file, resolve_func=False).get("task")
        except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
            yield f"{file.name}: {message_of(error)}"
        else:
            yield f"{file.name} says `task: {one_line(str(named), 60)}`"
