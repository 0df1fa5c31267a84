"""No document is among its own worked examples, whichever split they are drawn from."""

from __future__ import annotations

from typing import Any

import pytest

from adaptive_bench import registry
from adaptive_bench.evaluation.documents import are_of_tested
from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED
from adaptive_bench.evaluation.lm_eval_registration import SuiteTasks
from adaptive_bench.evaluation.loading import load_task
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.task import Task

ROWS, SHOTS = 12, 8
DOCS = """
import random
import datasets

def load(**_):
    def rows(split):
        return [{"question": f"What is {split} {n}?", "options": [f"{split}{n}", "x"], "gold": 0} for n in range(12)]
    return {split: datasets.Dataset.from_list(rows(split)) for split in ("train", "validation", "test")}

def shuffled(rows):  # with a global generator, as lm-eval's GPQA does
    def one(row):
        options = random.sample(row["options"], 2)
        return {"options": options, "gold": options.index(row["options"][0])}
    return rows.map(one)

def plain(rows):
    return rows.map(lambda row: {"question": row["question"] + " "})
"""
SETTINGS = """
task: shown
custom_dataset: !function docs.load
process_docs: !function docs.{process}
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{options}}}}"
doc_to_target: gold
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
{splits}
"""
TASK = ("shown", "", "loglikelihood")


def prompts(split="test"):
    """The task, and of each document its question and its prompt."""
    loaded: Any = load_task(find_task("shown"), None, SHOTS, split)
    loaded.set_fewshot_seed(FEWSHOT_SEED)
    loaded.build_all_requests()
    return loaded, [(one.doc["question"], one.args[0]) for one in loaded.instances if one.idx == 0]


@pytest.fixture
def lay_out(tmp_path, monkeypatch):
    def write(splits, process, validation=None):
        (tmp_path / "docs.py").write_text(DOCS)
        (tmp_path / "shown.yaml").write_text(SETTINGS.format(splits=splits, process=process))
        task = Task(*TASK, tmp_path, ("acc,none",), 0.5, None, validation_split=validation)
        monkeypatch.setitem(registry._registered, ("tasks", "shown"), (task, "this test"))

    return write


@pytest.mark.parametrize("process", ["plain", "shuffled"])
@pytest.mark.parametrize(
    ("splits", "of_tested"),
    [
        ("test_split: test", True),
        ("validation_split: validation", True),
        ("validation_split: validation\nfewshot_split: validation", True),
        ("test_split: test\nfewshot_split: test", True),
        ("test_split: test\nfewshot_config: {sampler: first_n}", True),
        ("test_split: test\nvalidation_split: validation", False),
        ("test_split: test\ntraining_split: train", False),
    ],
)
def test_no_document_sees_its_own_answer(lay_out, splits, of_tested, process):
    lay_out(splits, process)
    loaded, asked = prompts()
    assert len(asked) == ROWS
    for question, prompt in asked:
        assert prompt.count(question) == 1 and prompt.count("What is") == SHOTS + 1
    assert are_of_tested(loaded) == of_tested


def test_nor_in_lm_evals_own_command(lay_out, tmp_path):
    lay_out("test_split: test", "plain")
    loaded: Any = SuiteTasks(include_path=str(tmp_path), include_defaults=False).load(["shown"])["tasks"]["shown"]
    loaded.set_config("num_fewshot", SHOTS)
    loaded.set_fewshot_seed(FEWSHOT_SEED)
    loaded.build_all_requests()
    for one in loaded.instances:
        assert one.args[0].count(one.doc["question"]) == 1 and one.args[0].count("What is") == SHOTS + 1


def test_nor_does_one_that_choices_are_made_on(lay_out):
    lay_out("test_split: test\nvalidation_split: validation", "plain")
    _, asked = prompts("validation")
    assert all("validation" in question and prompt.count(question) == 1 for question, prompt in asked)


def test_examples_of_the_test_are_shown_to_documents_that_choices_are_made_on(lay_out):
    lay_out("test_split: test", "plain", validation="validation")
    loaded, asked = prompts("validation")
    assert all("validation" in question and prompt.count("test") >= SHOTS for question, prompt in asked)
    assert not are_of_tested(loaded)
