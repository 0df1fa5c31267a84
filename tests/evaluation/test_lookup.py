"""Task names: ours first, then every task lm-eval comes with."""

import json
from importlib.util import find_spec

import pytest

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.evaluation.lookup import expand_tasks, find_task, load_task
from adaptive_bench.model import AdaptiveModel


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
