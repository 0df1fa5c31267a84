"""Which documents a limit leaves: of a sorted file a fair share, the same for everybody."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from lm_eval import evaluator

from adaptive_bench import registry
from adaptive_bench.evaluation.documents import drawn
from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED, evaluate
from adaptive_bench.evaluation.lm_eval_model import AdaptiveLM
from adaptive_bench.evaluation.loading import load_task
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.task import Task

DOCS = """
import datasets

def load(**_):
    rows = [{"question": f"Row {n}?", "gold": n // 100} for n in range(200)]  # sorted by label
    return {"train": datasets.Dataset.from_list(rows[:50]), "test": datasets.Dataset.from_list(rows)}
"""
SETTINGS = """
task: by_label
custom_dataset: !function docs.load
output_type: multiple_choice
training_split: train
test_split: test
doc_to_text: "{{question}}"
doc_to_choice: ["yes", "no"]
doc_to_target: gold
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""


@pytest.fixture(autouse=True)
def _by_label(tmp_path, monkeypatch):
    (tmp_path / "docs.py").write_text(DOCS)
    (tmp_path / "by_label.yaml").write_text(SETTINGS)
    task = Task("by_label", "", "loglikelihood", tmp_path, ("acc,none",), 0.5, None)
    monkeypatch.setitem(registry._registered, ("tasks", "by_label"), (task, "this test"))


def test_half_of_a_file_that_is_sorted_by_label_has_both_labels(backbone, tokenizer):
    asked = []
    for method, seed in (("dense", 1), ("random_skip", 1), ("random_skip", 2)):
        model = AdaptiveModel.build(backbone, method, seed=seed)
        asked.append(evaluate(model, tokenizer, "by_label", limit=100, batch_size=32)[1])
    numbers = [sample.doc for sample in asked[0]]
    assert numbers == sorted(set(numbers)) and len(numbers) == 100
    assert all([sample.doc for sample in samples] == numbers for samples in asked)
    assert all(sample.target == sample.doc // 100 for sample in asked[0])  # each under its own number
    labels = Counter(sample.target for sample in asked[0])
    assert min(labels.values()) >= 35  # less happens to 1 draw in 100,000


@pytest.mark.parametrize("shots", [0, 2])
def test_documents_are_asked_as_by_lm_evals_own_samples(shots, backbone, tokenizer):
    model = AdaptiveModel.build(backbone, "dense").eval()
    evaluation, mine = evaluate(model, tokenizer, "by_label", limit=9, num_fewshot=shots)
    harness: Any = load_task(find_task("by_label"), None, shots)
    harness.set_fewshot_seed(FEWSHOT_SEED)
    found = evaluator.evaluate(
        AdaptiveLM(model, tokenizer, batch_size=64),
        {"tasks": {"by_label": harness}, "groups": {}, "group_map": {}},
        samples={"by_label": [sample.doc for sample in mine]},
        bootstrap_iters=0,
    )
    theirs = {sample["doc_id"]: sample for sample in found["samples"]["by_label"]}
    assert [(one.doc, one.prompt, one.scores["acc,none"]) for one in mine] == [
        (doc, sample["arguments"][0][0], sample["acc"]) for doc, sample in sorted(theirs.items())
    ]
    assert evaluation.scores["acc,none"] == found["results"]["by_label"]["acc,none"]
    assert evaluation.num_fewshot == shots


def test_a_lower_limit_leaves_some_of_the_same_documents():
    task = find_task("by_label")
    many, few = set(drawn(task, 200, 100)), set(drawn(task, 200, 30))
    assert few < many and len(few) == 30
    assert list(drawn(task, 200, None)) == list(drawn(task, 200, 200)) == list(drawn(task, 200, 999))
    assert set(drawn(task, 200, 100)) != set(range(100))


@pytest.mark.parametrize("name", ["nano_math", "nano_qa", "nano_qa_ll", "nano_text", "mmlu", "mmlu_stem", "mmlu_gen"])
def test_of_a_task_that_mixes_its_documents_the_first_ones_are_asked(name):
    assert list(drawn(find_task(name), 500, 128)) == list(range(128))


def test_given_documents_are_asked(backbone, tokenizer):
    model = AdaptiveModel.build(backbone, "dense")
    _, samples = evaluate(model, tokenizer, "by_label", documents=[3, 150])
    assert [(sample.doc, sample.prompt) for sample in samples] == [(3, "Row 3?"), (150, "Row 150?")]
