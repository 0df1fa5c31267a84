"""Splits of the nano tasks cannot overlap, whatever the seeds; lm-eval loads every YAML and scores the gold target."""

import math
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_eval.tasks import TaskManager

from adaptive_bench.task import ExampleRequest
from adaptive_bench.tasks.nano.harness_docs import held_out
from adaptive_bench.tasks.nano.items import split_of, stream
from adaptive_bench.tasks.nano.questions import make_math_problem, make_question
from adaptive_bench.tasks.nano.stories import make_story
from adaptive_bench.tasks.nano.task import NANO_MATH, NANO_QA, NANO_QA_LL, NANO_TEXT

_SEEDS = st.integers(min_value=0, max_value=2**32)
_TASKS = pytest.mark.parametrize("task", (NANO_MATH, NANO_QA, NANO_QA_LL, NANO_TEXT), ids=lambda task: task.name)


@pytest.mark.parametrize("make", (make_math_problem, make_question, make_story))
@settings(max_examples=15, deadline=None)
@given(seed=_SEEDS, other_seed=_SEEDS)
def test_no_item_is_in_two_splits(make, seed, other_seed):
    found = [
        {item.key for item in islice(stream(make, split, chosen), 40)}
        for split, chosen in (("train", seed), ("calibration", seed), ("validation", other_seed), ("test", other_seed))
    ]
    assert all(not first & second for place, first in enumerate(found) for second in found[:place])


@pytest.mark.parametrize("make", (make_math_problem, make_question, make_story))
def test_no_document_is_tested_twice(make):
    keys = [item.key for item in held_out(make, "test", 500)]
    assert len(set(keys)) == len(keys) == 500
    assert {split_of(key) for key in keys} == {"test"}


def test_the_split_of_a_key_is_the_same_on_every_machine():
    expected = {"0": "train", "6": "test", "11": "validation", "42": "calibration", "straße": "train"}
    assert {key: split_of(key) for key in expected} == expected


@_TASKS
def test_training_examples_depend_on_the_seed_alone(task):
    first, again, longer, other, validated = (
        task.training(ExampleRequest(split=split, count=count, seed=seed))
        for split, count, seed in (
            ("train", 20, 1),
            ("train", 20, 1),
            ("train", 30, 1),
            ("train", 20, 2),
            ("calibration", 20, 1),
        )
    )
    assert first == again == longer[:20]
    assert first != other
    assert not set(first) & set(validated)


def _load(task):
    manager = TaskManager(include_path=[str(task.folder)], include_defaults=False)
    return manager.load([task.name])["tasks"][task.name]


@pytest.mark.parametrize("task", (NANO_MATH, NANO_QA), ids=lambda task: task.name)
def test_a_generative_task_scores_its_own_target_as_right_and_nonsense_as_wrong(task):
    loaded = _load(task)
    docs = list(loaded.test_docs())
    assert len(docs) == 500
    assert loaded.config.generation_kwargs["until"] == ["Question:", "\n\n"]
    loaded.build_all_requests(limit=20)
    assert loaded.instances[0].args[0] == f"Question: {docs[0]['question']}\nAnswer:"
    for number, instance in enumerate(loaded.instances):
        instance.resps = [f" {instance.doc['target']}" if number % 2 else " nothing"]
    loaded.apply_filters()
    for number, instance in enumerate(loaded.instances):
        for metric in task.metrics:
            name, found = metric.split(",")
            scored = loaded.process_results(instance.doc, [instance.filtered_resps[found]])
            if name == "exact_match":
                assert scored[name] == number % 2
            elif found == "strict-match":  # flexible reading takes "nothing" for a word
                assert scored[name] == 1 - number % 2


def test_the_log_likelihood_task_offers_a_statement_per_option():
    loaded = _load(NANO_QA_LL)
    loaded.build_all_requests(limit=3)
    doc = next(iter(loaded.test_docs()))
    prompts = {instance.args for instance in loaded.instances if instance.doc_id == 0}
    assert prompts == {(f"Question: {doc['question']}\nAnswer:", f" {statement}") for statement in doc["statements"]}
    scored = loaded.process_results(doc, [(0.0 if place == doc["right"] else -9.0, False) for place in range(4)])
    assert scored["acc"] == 1.0


@pytest.mark.parametrize("task", (NANO_MATH, NANO_QA, NANO_QA_LL, NANO_TEXT), ids=lambda task: task.name)
def test_validation_documents_stand_beside_the_test_documents(task):
    loaded = _load(task)
    told, tested = ([str(doc) for doc in docs] for docs in (loaded.validation_docs(), loaded.test_docs()))
    assert len(told) == 500
    assert not set(told) & set(tested)
    assert loaded.eval_docs == loaded.test_docs()


@pytest.mark.parametrize("task", (NANO_MATH, NANO_QA, NANO_QA_LL), ids=lambda task: task.name)
def test_training_text_has_the_form_that_the_harness_asks_for(task):
    loaded = _load(task)
    docs = list(loaded.test_docs())
    trained = task.training(ExampleRequest(split="train", count=3000, seed=1))
    asked = {loaded.doc_to_text(doc) for doc in docs}
    assert not asked & {example.prompt for example in trained}
    ending = loaded.doc_to_text(docs[0]).rpartition("\n" if task.kind == "generative" else "Answer:")[2]
    assert all(example.prompt.endswith(ending) and example.completion.startswith(" ") for example in trained)
    if task is NANO_MATH:
        assert all(split_of(doc["question"]) == "test" for doc in docs)


def test_the_text_task_scores_whole_stories_in_bits_per_byte():
    loaded = _load(NANO_TEXT)
    docs = list(loaded.test_docs())
    assert len(docs) == 500
    assert all(split_of(doc["text"]) == "test" for doc in docs)
    loaded.build_all_requests(limit=2)
    assert [instance.args for instance in loaded.instances] == [(doc["text"],) for doc in docs[:2]]
    scored = loaded.process_results(docs[0], [-math.log(2) * 8])
    assert loaded.aggregation()["bits_per_byte"]([scored["bits_per_byte"]]) == pytest.approx(8 / len(docs[0]["text"]))
    assert not loaded.higher_is_better()["bits_per_byte"]
    trained = NANO_TEXT.training(ExampleRequest(split="train", count=1000, seed=1))
    assert not {example.completion for example in trained} & {doc["text"] for doc in docs}
    assert all(not example.prompt for example in trained)
