"""The nano tasks: questions read independently give the stated answers, stories are true, and hold nothing held out."""

from __future__ import annotations

import random
import re
from itertools import islice

import pytest
from nano_pretraining import pretraining_texts

from adaptive_bench.tasks.nano.items import split_of
from adaptive_bench.tasks.nano.questions import OPTIONS, make_math_problem, make_question
from adaptive_bench.tasks.nano.stories import make_statements, make_story, make_sums
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
