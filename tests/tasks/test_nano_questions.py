"""The nano tasks: questions read independently give the stated answers, stories are true, and hold nothing held out."""

from __future__ import annotations

import math
import random
import re
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_eval.tasks import TaskManager
from nano_pretraining import pretraining_texts

from adaptive_bench.task import ExampleRequest
from adaptive_bench.tasks.nano.items import held_out, split_of, stream
from adaptive_bench.tasks.nano.questions import OPTIONS, make_math_problem, make_question
from adaptive_bench.tasks.nano.stories import make_statements, make_story, make_sums
from adaptive_bench.tasks.nano.task import NANO_MATH, NANO_QA, NANO_QA_LL, NANO_TEXT
from adaptive_bench.tasks.nano.world import ACQUAINTANCES, PEOPLE, SIGHTS, STATEMENT, TOWNS, TRAITS, world

_GAIN = re.compile(r"(\d+) (?:arrive|appear|turn up|come from)")
_LOSS = re.compile(r"(\d+) (?:break|vanish|get lost|go to)")
_COMPARED = re.compile(r"^\w+ has (\d+) (more|fewer) than")
_STEP = re.compile(r"(?:(\w+) )?(\d+) ([-+*]) (\d+) = (\d+)\.")
_FACTORS = {"twice": 2, "three times": 3, "double": 2, "triple": 3}


def _solve(question):
    """Reads the question sentence by sentence."""
    told = re.findall(r"[^.?]+[.?]", question)
    piles: list[int] = []
    for sentence in (part.strip() for part in told[:-1]):
        factor = next((value for word, value in _FACTORS.items() if word in sentence), None)
        if "in each" in sentence:
            count, size = map(int, re.findall(r"\d+", sentence))
            piles.append(count * size)
        elif compared := _COMPARED.search(sentence):
            piles.append(piles[0] + int(compared[1]) * (1 if compared[2] == "more" else -1))
        elif factor and "as many as" in sentence:
            piles.append(piles[0] * factor)
        elif factor:
            piles[-1] *= factor
        elif gain := _GAIN.search(sentence):
            piles[-1] += int(gain[1])
        elif loss := _LOSS.search(sentence):
            piles[-1] -= int(loss[1])
        else:
            piles.append(int(re.fullmatch(r"\w+ has (\d+) \w+\.", sentence)[1]))
    return sum(piles) if "together" in told[-1] else piles[-1]


@pytest.mark.parametrize("seed", range(3))
def test_the_answer_follows_from_the_question(seed):
    source = random.Random(seed)
    for item in (make_math_problem(source) for _ in range(500)):
        assert _solve(item.question) == int(item.answer), item.question
        assert 0 < int(item.answer) < 40


def test_each_step_is_a_true_computation_and_the_last_one_is_the_answer():
    source = random.Random(7)
    for item in (make_math_problem(source) for _ in range(500)):
        steps = _STEP.findall(item.reasoning)
        assert len(steps) == item.steps in (2, 3)
        for _, left, sign, right, result in steps:
            computed = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}[sign]
            assert computed == int(result)
        assert steps[-1][-1] == item.answer


_LAST = {
    "Who is the best friend": "friend",
    "Who is the cousin": "cousin",
    "Who is the neighbour": "neighbour",
    "Where does": "town",
    "Which pet": "pet",
    "What is the job": "job",
    "Which river": "river",
    "Which colour": "colour",
    "Which dish": "dish",
}
_NAMED = re.compile(r"the (best friend|cousin|neighbour|town) of ")


def _answer(question):
    """Follows the facts that a question names, and how many they are."""
    last = next(relation for words, relation in _LAST.items() if question.startswith(words))
    asked = question.removeprefix("Who is the best friend of ").removeprefix("Who is the cousin of ")
    named = [found.split()[-1] for found in _NAMED.findall(asked.removeprefix("Who is the neighbour of "))]
    (subject,) = [word for word in re.findall(r"\w+", question) if word in PEOPLE]
    for relation in (*reversed(named), last):
        subject = world().facts[subject, relation]
    return subject, len(named) + 1


def test_the_answer_is_where_the_facts_lead():
    source = random.Random(3)
    for item in (make_question(source) for _ in range(1000)):
        assert (item.answer, item.steps) == _answer(item.question)
        assert item.steps in (2, 3)


def test_the_reasoning_states_a_true_fact_per_hop_and_ends_with_the_answer():
    true = {world().state(subject, relation) for subject, relation in world().facts}
    source = random.Random(4)
    for item in (make_question(source) for _ in range(500)):
        hops = [f"{hop}." for hop in item.reasoning.removesuffix(".").split(". ")]
        assert len(hops) == item.steps
        assert true.issuperset(hops)
        assert item.reasoning.endswith(f"{item.answer}.")


def test_every_statement_is_true_but_one_alone_is_asked_for():
    source = random.Random(5)
    for item in (make_question(source) for _ in range(500)):
        assert len(set(item.statements)) == OPTIONS
        assert item.statements[item.right] == item.reasoning
        assert {statement.count(".") for statement in item.statements} == {item.steps}


def test_every_fact_of_the_world_is_present_and_no_word_means_two_things():
    known = world()
    assert len(known.facts) == len(PEOPLE) * len(ACQUAINTANCES + TRAITS) + len(TOWNS) * len(SIGHTS)
    assert all(value in known.values[relation] for (_, relation), value in known.facts.items())
    assert len(set(PEOPLE)) == len(PEOPLE)
    assert not set(PEOPLE) & set(TOWNS)
    assert all(known.facts[person, relation] != person for person in PEOPLE for relation in ACQUAINTANCES)
    assert STATEMENT.keys() == known.values.keys()


_COMPUTATION = re.compile(r"(\d+) ([-+*]) (\d+) = (\d+)")


@pytest.mark.parametrize("make", (make_story, make_sums))
def test_every_computation_is_true(make):
    source = random.Random(1)
    for text in (make(source).text for _ in range(500)):
        found = _COMPUTATION.findall(text)
        assert found
        for left, sign, right, result in found:
            assert {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}[sign] == int(
                result
            )
            assert 0 < int(result) <= 40


@pytest.mark.parametrize("make", (make_story, make_statements))
def test_every_stated_fact_is_true(make):
    facts = world().facts
    source = random.Random(2)
    patterns = {
        relation: re.compile(statement.format(subject=r"([A-Z]\w+)", value=r"(\w+)").replace(".", r"\."))
        for relation, statement in STATEMENT.items()
    }
    stated = 0
    for text in (make(source).text for _ in range(300)):
        for relation, pattern in patterns.items():
            for subject, value in pattern.findall(text):
                assert facts[subject, relation] == value, text
                stated += 1
    assert stated > 300


def test_pretraining_never_shows_the_form_of_a_task_or_a_held_out_story():
    for text in (story.text for story in islice(pretraining_texts(1), 3000)):
        assert not re.search(r"[?:#\n]", text)
        assert split_of(text) == "train"


# Splits of the nano tasks cannot overlap, whatever the seeds; lm-eval loads every YAML and scores the gold target.


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
