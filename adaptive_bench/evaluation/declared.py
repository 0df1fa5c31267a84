"""Whether a task is what its registration says: its YAML file is there, has that kind and gives that metric."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml
from lm_eval.api.registry import AGGREGATION_REGISTRY
from lm_eval.api.task import ConfigurableTask
from lm_eval.api.task import Task as HarnessTask
from lm_eval.tasks._yaml_loader import load_yaml

from adaptive_bench import faults
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, PluginFault, message_of, one_line
from adaptive_bench.evaluation.harness_data import files_of
from adaptive_bench.metric import metric_of
from adaptive_bench.store.evaluations import Sample
from adaptive_bench.strict_yaml import key_again
from adaptive_bench.task import Task
from adaptive_bench.validation import is_description

_LARGEST_VERSION = 10**9
_ROUNDING = 1e-9  # of a value that is a mean or a ratio
# What lm-eval gives for the kinds of request whose metrics are a list of its own, whatever else a YAML file names.
_OF_OUTPUT = {
    "loglikelihood": {"perplexity", "acc"},
    "loglikelihood_rolling": {"word_perplexity", "byte_perplexity", "bits_per_byte"},
    "multiple_choice": {
        *("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match", "f1", "mcc", "brier_score", "likelihood")
    },
}


def check_declared(task: Task, loaded: HarnessTask) -> None:
    """Hold the registration of a task against its YAML file, before anything is computed.

    Raises:
        PluginFault: They contradict each other.
    """
    _check_kind(task, loaded)
    _check_headline(task, loaded)
    _check_validation_split(task, loaded)
    _check_version(task, loaded)
    if is_of_plugin(task.folder):
        _check_filters(task, loaded)
        _check_metric(task, loaded)
        _check_chance(task)


def check_file(name: str, file: Path) -> None:
    """Hold the YAML file of a plugin's task to what lm-eval reads of it: of a key that is given twice it takes the last
    one, and metadata that are no mapping it loses.

    Raises:
        PluginFault: It has such.
    """
    whole = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    for node in _mappings(whole):
        if (key := key_again(key for key, _ in node.value)) is not None:
            raise PluginFault(
                f"A YAML file says each key once, but {str(file)!r} says {one_line(str(key.value), 60)!r} again in "
                f"line {key.start_mark.line + 1}. Keep one of them."
            )
    metadata = load_yaml(file, resolve_func=False).get("metadata")  # with what it includes
    if metadata is not None and not isinstance(metadata, dict):
        raise PluginFault(
            f"The metadata of a task are keys and values, got {one_line(repr(metadata), 60)} in {str(file)!r} of "
            f"{name!r}. Write `metadata:` and in the line below it `  version: 1`."
        )


def check_alone(name: str, folder: Path) -> None:
    """Refuse a second YAML file of a plugin's task: lm-eval would take either of them without a word.

    Raises:
        PluginFault: With the names of both.
    """
    files = [file for file in sorted(files_of(folder)) if file.suffix == ".yaml" and _own_name(file) == name]
    if len(files) > 1:
        both = " and ".join(repr(str(file.relative_to(folder))) for file in files)
        raise PluginFault(
            f"The folder of a task holds one YAML file that says `task: {name}`, but in {folder} {both} say so. Rename "
            f"or remove all but one."
        )


def _own_name(file: Path) -> object:
    """The name that a YAML file itself gives a task."""
    try:
        return load_yaml(file, resolve_func=False, recursive=False).get("task")
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError):  # lm-eval passes it over
        return None


def check_values(task: Task, scores: Mapping[str, float], samples: Iterable[Sample]) -> None:
    """Hold the values of metrics with known bounds that a plugin's task gave to these bounds: the score, and where that
    is a mean of its documents each of theirs.

    Raises:
        PluginFault: One lies beyond.
    """
    if not is_of_plugin(task.folder):
        return
    of_documents = (
        (f"document {one.doc}", key, value)
        for one in samples
        for key, value in one.scores.items()
        if metric_of(key).is_mean
    )
    for where, key, value in (*of_documents, *(("the whole task", key, value) for key, value in scores.items())):
        known = metric_of(key)
        if not known.low - _ROUNDING <= value <= known.high + _ROUNDING:
            raise PluginFault(
                f"Values of the metric {key.partition(',')[0]!r} lie from {known.low:g} to {known.high:g}, but the "
                f"task {task.name!r} gives {value:g} for {where}. Correct its process_results or metric, or give the "
                f"metric a name of its own."
            )


def _mappings(node: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    if isinstance(node, yaml.MappingNode):
        yield node
        for _, value in node.value:
            yield from _mappings(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _mappings(value)


def _check_filters(task: Task, loaded: HarnessTask) -> None:
    """lm-eval makes the filters of answers only when there are answers."""
    if type(loaded) is not ConfigurableTask:
        return
    for ensemble in loaded._filters:
        for make in ensemble.filters:
            try:
                make()
            except Exception as error:  # a filter of lm-eval's with another argument, or the plugin's own
                raise PluginFault(
                    f"The filters of a task can be made with what its YAML file gives them, but of {ensemble.name!r} "
                    f"in that of {task.name!r} one cannot: {type(error).__name__}: {message_of(error)}. Correct its "
                    f"filter_list."
                ) from error


def _check_metric(task: Task, loaded: HarnessTask) -> None:
    """Every metric can be averaged, and is better where this package takes it to be better."""
    if type(loaded) is not ConfigurableTask:
        return
    listed = loaded.config.metric_list or []
    for one in listed:
        if (how := one.get("aggregation")) is not None and not callable(how) and how not in AGGREGATION_REGISTRY:
            raise PluginFault(
                f"A metric is aggregated by one of {', '.join(sorted(AGGREGATION_REGISTRY))} or by a function, but the "
                f"YAML file of {task.name!r} has `aggregation: {one_line(str(how), 60)}`. Correct it."
            )
        known, higher = metric_of(str(one.get("metric"))), one.get("higher_is_better")
        if higher is not None and known.better != "unknown" and bool(higher) != (known.better == "higher"):
            raise PluginFault(
                f"Of the metric {one.get('metric')!r} {known.better} is better, but the YAML file of {task.name!r} has "
                f"`higher_is_better: {str(bool(higher)).lower()}`. Correct it, or give the metric a name of its own."
            )


def _check_chance(task: Task) -> None:
    known = metric_of(task.metrics[0])
    if not math.isnan(task.chance) and not known.low <= task.chance <= known.high:
        raise PluginFault(
            f"What a guess scores is a value of the headline metric, from {known.low:g} to {known.high:g} for "
            f"{task.metrics[0]!r}, but the chance of the task {task.name!r} is {task.chance:g}. Correct it, or give "
            f"math.nan where nobody can guess."
        )


def _check_kind(task: Task, loaded: HarnessTask) -> None:
    kind = "generative" if loaded.OUTPUT_TYPE == "generate_until" else "loglikelihood"
    if task.kind != kind:
        raise PluginFault(
            f"The kind of a task is that of its YAML file, but the task {task.name!r} is registered as {task.kind!r} "
            f"and its file says `output_type: {loaded.OUTPUT_TYPE}`, which is {kind!r}. Correct one of the two."
        )


def _check_headline(task: Task, loaded: HarnessTask) -> None:
    """Of a task with a `process_results` of its own nobody knows what it gives, nor of a metric that is a function:
    that may give several.
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


def _check_version(task: Task, loaded: HarnessTask) -> None:
    metadata = loaded.config.metadata or {}
    version = metadata.get("version") if isinstance(metadata, dict) else metadata
    if isinstance(version, int | float) and not isinstance(version, bool):
        holds = isinstance(metadata, dict) and math.isfinite(version) and abs(version) < _LARGEST_VERSION
    else:
        holds = isinstance(metadata, dict) and (version is None or is_description(version))
    if not holds:
        raise PluginFault(
            f"The metadata of a task names its version, a number below {_LARGEST_VERSION:,} or one line of text, got "
            f"{one_line(repr(version)[:200], 60)} in the YAML file of {task.name!r}. Write `version: 1.0` below "
            f"`metadata:` there."
        )


def _check_validation_split(task: Task, loaded: HarnessTask) -> None:
    tested = loaded.config.test_split or loaded.config.validation_split
    if task.validation_split is not None and task.validation_split == tested:
        raise PluginFault(
            f"Of the task {task.name!r}, validation_split names documents beside those it is tested on, got "
            f"{tested!r}, which are these. Correct the plugin: name another split, or None."
        )
    given = loaded.dataset
    if task.validation_split is not None and is_of_plugin(task.folder) and task.validation_split not in given:
        raise PluginFault(
            f"Of the task {task.name!r}, validation_split is one of the splits of its documents, "
            f"{', '.join(map(repr, given))}, got {task.validation_split!r}. Correct the plugin: name one of them, or "
            f"None."
        )


def without_file(name: str, folder: Path) -> AdaptiveBenchError:
    """What is wrong where the folder of a task has no YAML file of that name that lm-eval can read."""
    said = f"The folder of a task holds a YAML file that says `task: {name}`, but {folder} has none that can be read"
    if not is_of_plugin(folder):
        return EnvironmentProblem(f"{said}. Reinstall the package that registers the task.")
    found = "; ".join(_read(folder)) if folder.is_dir() else "there is no such folder"
    return PluginFault(f"{said} ({found or 'it has no YAML file'}). Correct the plugin.")


def is_of_plugin(folder: Path) -> bool:
    """Whether a folder of a task is a plugin's."""
    return faults.is_watched(str(folder.absolute() / "task.yaml"))


def _read(folder: Path) -> Iterator[str]:
    """Of each YAML file in a folder the name it gives, or why it cannot be read."""
    for file in sorted(one for one in files_of(folder) if one.suffix == ".yaml"):
        try:
            named = load_yaml(file, resolve_func=False).get("task")
        except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
            yield f"{file.name}: {message_of(error)}"
        else:
            yield f"{file.name} says `task: {one_line(str(named), 60)}`"
