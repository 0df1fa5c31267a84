"""Generates `nano_qa`: multiple choice over the world's facts, one or two hops, five options.

What is held out: a two-hop question by its composition (person, first relation, second relation), so that no test
composition was ever trained with any options; a one-hop question by its fact and set of options, since the fact itself
must be known.
"""

from __future__ import annotations

import random

from .item import Item
from .world import ASKED, PERSON_RELATIONS, STATEMENT, TOWN_RELATIONS, World, world

LETTERS = "ABCDE"
# How a two-hop question names the thing in the middle.
_MIDDLE = {"friend": "the best friend of {subject}", "town": "the town of {subject}"}


def _with_options(
    asked: str, answer: str, relation: str, source: random.Random, subject: str
) -> tuple[str, str, list[str]]:
    """The question with its options, the letter of the answer, and the options."""
    wrong = [value for value in world().values[relation] if value not in (answer, subject)]
    options = [*source.sample(wrong, len(LETTERS) - 1), answer]
    source.shuffle(options)
    listed = " ".join(f"{letter}) {option}" for letter, option in zip(LETTERS, options, strict=True))
    return f"{asked} {listed}", LETTERS[options.index(answer)], options


def make_one_hop(source: random.Random) -> Item:
    """A question about one fact of a person or a town."""
    known = world()
    subject, relation = source.choice(list(known.facts))
    value = known.facts[subject, relation]
    asked = ASKED[relation].format(subject=subject)
    question, letter, options = _with_options(asked, value, relation, source, subject)
    reasoning = STATEMENT[relation].format(subject=subject, value=value)
    return Item(question, reasoning, letter, key="|".join((asked, *sorted(options))), steps=1)


def make_two_hop(source: random.Random) -> Item:
    """A question about the best friend or the town of a person."""
    known = world()
    person = source.choice(known.people)
    first = source.choice(tuple(_MIDDLE))
    middle = known.facts[person, first]
    second = source.choice(PERSON_RELATIONS if first == "friend" else TOWN_RELATIONS)
    value = known.facts[middle, second]
    asked = ASKED[second].format(subject=_MIDDLE[first].format(subject=person))
    question, letter, _ = _with_options(asked, value, second, source, person)
    hops = (
        STATEMENT[first].format(subject=person, value=middle),
        STATEMENT[second].format(subject=middle, value=value),
    )
    return Item(question, " ".join(hops), letter, key=f"{person}|{first}|{second}", steps=2)


def make_question(source: random.Random) -> Item:
    """One hop or two, evenly."""
    return source.choice((make_one_hop, make_two_hop))(source)


def fact_statements(known: World) -> list[str]:
    """Every fact as a sentence, for pretraining."""
    return [STATEMENT[relation].format(subject=s, value=value) for (s, relation), value in known.facts.items()]
