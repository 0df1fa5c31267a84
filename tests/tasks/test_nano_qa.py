"""nano_qa: the world is fixed, answers follow from it, and held-out compositions are never trained."""

from __future__ import annotations

import random
import re
from itertools import islice

from adaptive_bench.tasks.nano.qa_questions import LETTERS, make_one_hop, make_question, make_two_hop
from adaptive_bench.tasks.nano.splits import stream
from adaptive_bench.tasks.nano.world import ASKED, world


def _answers() -> dict[str, str]:
    """Every question of one or two hops, without options, and its answer, by following the facts."""
    facts = world().facts
    known = {ASKED[relation].format(subject=subject): value for (subject, relation), value in facts.items()}
    for person in world().people:
        for first, named in (("friend", f"the best friend of {person}"), ("town", f"the town of {person}")):
            for (subject, relation), value in facts.items():
                if subject == facts[person, first]:
                    known[ASKED[relation].format(subject=named)] = value
    return known


def test_the_lettered_option_is_the_answer_that_the_facts_give() -> None:
    answers = _answers()
    source = random.Random(3)
    for item in (make_question(source) for _ in range(1000)):
        asked, listed = item.question.split("? ", 1)
        options = {letter: option for option, letter in re.findall(r"(\w+) \(([A-D])\)", listed)}
        assert tuple(options) == tuple(LETTERS)
        assert len(set(options.values())) == len(LETTERS)
        assert item.answer == answers[f"{asked}?"] == options[LETTERS[item.right]]
        assert item.reasoning.endswith(f"{item.answer}.")
        assert item.asked == f"{asked}?"
        assert item.statements[item.right] == item.reasoning
        assert len(set(item.statements)) == len(LETTERS)


def test_the_same_seed_gives_the_same_question() -> None:
    assert make_question(random.Random(5)) == make_question(random.Random(5))


def test_every_fact_of_the_world_is_present() -> None:
    known = world()
    assert len(known.facts) == 4 * len(known.people) + 3 * len(known.towns)
    assert all(value in known.values[relation] for (_, relation), value in known.facts.items())


def test_a_two_hop_composition_belongs_to_one_split_only() -> None:
    asked = {
        split: {item.question.split("?")[0] for item in islice(stream(make_two_hop, split, 1), 400)}
        for split in ("train", "calibration", "test")
    }
    assert not asked["train"] & asked["test"]
    assert not asked["train"] & asked["calibration"]
    assert not asked["calibration"] & asked["test"]


def test_one_hop_options_in_another_order_stay_in_their_split() -> None:
    source = random.Random(2)
    for item in (make_one_hop(source) for _ in range(200)):
        asked, listed = item.question.split("? ", 1)
        assert item.key == "|".join((f"{asked}?", *sorted(re.findall(r"(\w+) \(", listed))))
