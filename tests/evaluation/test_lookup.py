"""Task names: ours first, then every task lm-eval comes with; and what a task is registered as."""

import json
import subprocess
import sys
from copy import copy
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from lm_eval import tasks
from lm_eval.tasks._index import TaskIndex

from adaptive_bench import errors, registry
from adaptive_bench.errors import EnvironmentProblem, PluginFault, UsageError
from adaptive_bench.evaluation import lookup
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.evaluation.loading import check_declared, load_task, setting_up
from adaptive_bench.evaluation.lookup import expand_tasks, find_task
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.task import TaskGroup


@pytest.fixture
def data_dir(tmp_path):
    (tmp_path / "piqa").mkdir()
    rows = [{"goal": f"Eat {n} apples", "sol1": "one by one", "sol2": "all at once", "label": 0} for n in range(4)]
    for split in ("train", "validation"):
        (tmp_path / "piqa" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_our_task_wins_over_a_stock_task_of_the_same_name():
    assert find_task("gsm8k") is registry.get("tasks", "gsm8k")


def test_a_stock_task_is_described_by_its_kind():
    task = find_task("piqa")
    assert (task.kind, task.metrics, task.training) == ("loglikelihood", ("acc,none", "acc_norm,none"), None)
    written = find_task("gsm8k_cot")
    assert (written.kind, written.metrics[0]) == ("generative", "exact_match,strict-match")


@pytest.mark.parametrize(
    ("name", "hint"), [("gsm8q", "'gsm8k'"), ("hellaswagg", "'hellaswag'"), ("zzzzzz", "Known: c")]
)
def test_an_unknown_task_is_answered_with_a_suggestion(name, hint):
    with pytest.raises(UsageError, match=f"No task is called '{name}'.*{hint}"):
        find_task(name)


def test_groups_stand_for_their_tasks_where_several_are_named():
    assert expand_tasks(["csqa", "paper-generative", "piqa"]) == ("csqa", "gsm8k", "piqa")
    assert len(expand_tasks(["mmlu_humanities"])) == 13
    assert "arc_easy" in expand_tasks(["ai2_arc"])
    assert expand_tasks(["perplexity:novels", "no such task"]) == ("perplexity:novels", "no such task")


@pytest.mark.parametrize("name", ["paper-generative", "mmlu_humanities", "ai2_arc"])
def test_a_group_is_no_single_task(name):
    with pytest.raises(UsageError, match=f"One task is wanted, but '{name}' is a group"):
        find_task(name)


def test_a_group_that_changes_its_tasks_is_refused():
    with pytest.raises(UsageError, match="lm-eval's group 'openllm' changes settings"):
        expand_tasks(["openllm"])


def test_an_argument_is_given_to_tasks_that_take_one_only():
    assert find_task("perplexity:novels").name == "perplexity:novels"
    for name, message in (
        ("perplexity", "needs the name of its data"),
        ("perplexity:", "needs the name of its data"),
        ("piqa:novels", "takes nothing after a colon"),
    ):
        with pytest.raises(UsageError, match=message):
            find_task(name)


def test_a_stock_task_runs_on_a_local_copy_of_its_data(data_dir, backbone, tokenizer):
    model = AdaptiveModel.build(backbone, "dense")
    evaluation, samples = evaluate(model, tokenizer, "piqa", data_dir=data_dir, batch_size=4)
    assert evaluation.docs == len(samples) == 4
    assert evaluation.scores["acc,none"] == sum(sample.output == 0 for sample in samples) / 4


def test_data_that_cannot_be_reached_is_an_error_that_says_what_to_set(data_dir):
    for folder in (None, data_dir):
        with pytest.raises(EnvironmentProblem, match=r"openbookqa.* cannot be read.*--data-dir or ADAPTIVE_BENCH_DATA"):
            load_task(find_task("openbookqa"), folder, None)


def test_worked_examples_are_refused_where_lm_eval_would_leave_them_out_in_silence(data_dir):
    data = data_dir / "cnn_dailymail" / "3.0.0"  # a configuration is a folder in the folder of the data set
    data.mkdir(parents=True)
    for split in ("train", "validation", "test"):
        (data / f"{split}.jsonl").write_text(json.dumps({"article": "He ate.", "highlights": "Ate.", "id": "1"}) + "\n")
    task = find_task("cnn_dailymail_abisee")
    assert load_task(task, data_dir, None).config.num_fewshot == 0
    with pytest.raises(UsageError, match="without worked examples, got --num-fewshot 2"):
        load_task(task, data_dir, 2)


@pytest.mark.skipif(find_spec("unitxt") is not None, reason="the package is there")
def test_a_stock_task_that_needs_another_package_is_told():
    with pytest.raises(EnvironmentProblem, match=r"'cnn_dailymail' cannot be set up.*install unitxt"):
        load_task(find_task("cnn_dailymail"), None, None)


def test_what_is_changed_in_a_loaded_task_stays_there():
    task = find_task("nano_math")
    load_task(task, None, 0).config.generation_kwargs["max_gen_toks"] = 4
    assert load_task(task, None, 0).config.generation_kwargs["max_gen_toks"] > 4


# lm-eval's names without lm-eval: the same ones, from a file when nothing changed.


FOLDERS = ("hellaswag", "mmlu", "piqa", "afrobench/adr", "bbh", "super_glue", "scrolls", "wikitext")


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lookup.stock_tasks.cache_clear()
    yield tmp_path / "adaptive-bench" / "lm_eval_tasks.json"
    lookup.stock_tasks.cache_clear()


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_scan_finds_what_lm_eval_finds(folder):
    root = Path(tasks.__file__).parent / folder
    theirs = TaskIndex.build([root])
    ours = lookup._scan(root)
    assert ours.keys() == theirs.keys()
    for name, entry in theirs.items():
        found = ours[name]
        assert found.kind == entry.kind.name.lower().removeprefix("py_")
        assert found.file == (None if entry.yaml_path is None else str(entry.yaml_path))
        assert set(found.members) == (entry.tags if found.kind == "tag" else set())


def test_names_are_kept_until_lm_eval_changes(own_cache, monkeypatch):
    first = lookup.stock_tasks()
    assert first["piqa"].kind == "task" and first["mmlu"].kind == "group"
    lookup.stock_tasks.cache_clear()
    monkeypatch.setattr(lookup, "_scan", lambda root: pytest.fail("scanned again"))
    assert lookup.stock_tasks() == first
    lookup.stock_tasks.cache_clear()
    monkeypatch.setattr(lookup, "version", lambda name: "another")
    monkeypatch.setattr(lookup, "_scan", lambda root: {})
    assert lookup.stock_tasks() == {}


@pytest.mark.parametrize("content", ["", "[]", '{"stamp": 1}', "{"])
def test_a_damaged_cache_is_made_anew(own_cache, monkeypatch, content):
    own_cache.parent.mkdir()
    own_cache.write_text(content)
    monkeypatch.setattr(lookup, "_scan", lambda root: {"a": lookup.Stock("tag", None, ("b",))})
    assert lookup.stock_tasks()["a"].members == ("b",)


def test_a_home_that_cannot_be_written_costs_time_only(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(lookup, "_scan", lambda root: {})
    lookup.stock_tasks.cache_clear()
    assert lookup.stock_tasks() == {}
    lookup.stock_tasks.cache_clear()


def test_names_are_found_without_importing_lm_eval():
    program = (
        "import sys\nfrom adaptive_bench.evaluation.lookup import stock_tasks\n"
        "assert 'piqa' in stock_tasks()\nassert not {'torch', 'lm_eval', 'datasets'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parent)


def test_a_task_that_is_told_its_data_is_known_by_what_stands_before_the_colon():
    lookup.check_task_name("perplexity:HuggingFaceFW/fineweb")
    with pytest.raises(UsageError, match="No task is called 'perplexty:novels'"):
        lookup.check_task_name("perplexty:novels")


# What a task is registered as, held against its YAML file.


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
    registry.register("tasks", "one")(TaskGroup("one", "", ("two",)))
    registry.register("tasks", "two")(TaskGroup("two", "", ("nano_math", "one")))
    with pytest.raises(PluginFault, match="is no member of itself, got 'one' in 'two' in 'one'"):
        expand_tasks(["one"])
