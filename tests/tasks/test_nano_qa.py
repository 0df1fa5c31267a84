"""nano_qa: the world is fixed, answers follow from it in several hops, and held-out compositions are never trained."""

from __future__ import annotations

import random
import re
from itertools import islice

from adaptive_bench.tasks.nano.items import stream
from adaptive_bench.tasks.nano.questions import OPTIONS, make_question
from adaptive_bench.tasks.nano.world import ACQUAINTANCES, PEOPLE, SIGHTS, STATEMENT, TOWNS, TRAITS, world

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


def _answer(question: str) -> tuple[str, int]:
    """Follows the facts that a question names, and how many they are."""
    last = next(relation for words, relation in _LAST.items() if question.startswith(words))
    asked = question.removeprefix("Who is the best friend of ").removeprefix("Who is the cousin of ")
    named = [found.split()[-1] for found in _NAMED.findall(asked.removeprefix("Who is the neighbour of "))]
    (subject,) = [word for word in re.findall(r"\w+", question) if word in PEOPLE]
    for relation in (*reversed(named), last):
        subject = world().facts[subject, relation]
    return subject, len(named) + 1


def test_the_answer_is_where_the_facts_lead() -> None:
    source = random.Random(3)
    for item in (make_question(source) for _ in range(1000)):
        assert (item.answer, item.steps) == _answer(item.question)
        assert item.steps in (2, 3)


def test_the_reasoning_states_a_true_fact_per_hop_and_ends_with_the_answer() -> None:
    true = {world().state(subject, relation) for subject, relation in world().facts}
    source = random.Random(4)
    for item in (make_question(source) for _ in range(500)):
        hops = [f"{hop}." for hop in item.reasoning.removesuffix(".").split(". ")]
        assert len(hops) == item.steps
        assert true.issuperset(hops)
        assert item.reasoning.endswith(f"{item.answer}.")


def test_every_statement_is_true_but_one_alone_is_asked_for() -> None:
    source = random.Random(5)
    for item in (make_question(source) for _ in range(500)):
        assert len(set(item.statements)) == OPTIONS
        assert item.statements[item.right] == item.reasoning
        assert {statement.count(".") for statement in item.statements} == {item.steps}


def test_every_fact_of_the_world_is_present_and_no_word_means_two_things() -> None:
    known = world()
    assert len(known.facts) == len(PEOPLE) * len(ACQUAINTANCES + TRAITS) + len(TOWNS) * len(SIGHTS)
    assert all(value in known.values[relation] for (_, relation), value in known.facts.items())
    assert len(set(PEOPLE)) == len(PEOPLE)
    assert not set(PEOPLE) & set(TOWNS)
    assert all(known.facts[person, relation] != person for person in PEOPLE for relation in ACQUAINTANCES)
    assert STATEMENT.keys() == known.values.keys()


def test_a_composition_belongs_to_one_split_only() -> None:
    asked = [
        {item.question for item in islice(stream(make_question, split, 1), 400)}
        for split in ("train", "calibration", "validation", "test")
    ]
    assert all(not first & second for place, first in enumerate(asked) for second in asked[:place])
