"""What a task is registered as, held against its YAML file."""

from copy import copy
from dataclasses import replace

import pytest

from adaptive_bench import errors
from adaptive_bench.errors import EnvironmentProblem, PluginFault
from adaptive_bench.evaluation.lookup import expand_tasks, find_task, load_task, setting_up
from adaptive_bench.evaluation.task_files import check_declared
from adaptive_bench.registry import register
from adaptive_bench.task import TaskGroup


@pytest.mark.parametrize(
    ("task", "metric"),
    [
        ("nano_qa_ll", "acc,nosuch"),
        ("nano_qa_ll", "acc_norm,none"),
        ("nano_text", "word_perplexity,none"),
    ],
)
def test_a_headline_that_the_file_does_not_give_is_refused(task, metric):
    with pytest.raises(PluginFault, match=f"the task '{task}' has '{metric}' first, and its file gives '.*,none'"):
        load_task(replace(find_task(task), metrics=(metric,)), None, None)


def test_a_headline_of_a_task_that_writes_needs_a_filter_that_is_there():
    task = find_task("nano_math")
    for metric in ("exact_match,none", "acc,none"):
        with pytest.raises(PluginFault, match=r"its file gives 'exact_match,strict-match'"):
            load_task(replace(task, metrics=(metric,)), None, None)
    assert load_task(replace(task, metrics=("unparsable,flexible-extract",)), None, None)


def test_a_task_that_makes_its_results_itself_may_give_any():
    task = replace(find_task("nano_qa_ll"), metrics=("mine,none",))
    loaded = copy(load_task(find_task("nano_qa_ll"), None, None))
    loaded._config = replace(loaded.config, process_results=lambda doc, results: {"mine": 1.0})
    check_declared(task, loaded)


def test_a_kind_that_contradicts_the_file_is_refused():
    with pytest.raises(PluginFault, match=r"registered as 'loglikelihood' and its file says `output_type: generate_un"):
        load_task(replace(find_task("nano_math"), kind="loglikelihood"), None, None)


def test_a_folder_without_the_file_is_of_the_plugin_or_of_the_installation(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "_watched", set())
    task = replace(find_task("nano_math"), name="mine", folder=tmp_path)
    with pytest.raises(EnvironmentProblem, match="no readable YAML file that says `task: mine`"):
        load_task(task, None, None)
    errors.watch(tmp_path)
    with pytest.raises(PluginFault, match="no readable YAML file that says `task: mine`"):
        load_task(task, None, None)


def test_a_yaml_file_of_a_plugin_is_corrected_and_a_missing_package_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "_watched", set())
    errors.watch(tmp_path)
    with pytest.raises(PluginFault, match="Correct its YAML file"), setting_up("mine", tmp_path):
        raise ValueError
    with pytest.raises(EnvironmentProblem, match="Install what it needs"), setting_up("mine", tmp_path):
        raise ModuleNotFoundError


def test_groups_of_tasks_that_lead_in_a_circle_are_refused(monkeypatch):
    monkeypatch.setattr("adaptive_bench.registry._registered", {})
    register("tasks", "one")(TaskGroup("one", "", ("two",)))
    register("tasks", "two")(TaskGroup("two", "", ("nano_math", "one")))
    with pytest.raises(PluginFault, match="is no member of itself, got 'one' in 'two' in 'one'"):
        expand_tasks(["one"])
