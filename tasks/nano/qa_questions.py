"""Generates `nano_qa`: multiple choice over the world's facts, one or two hops, four options.

What is held out: a two-hop question by its composition (person, first relation, second relation), so that no test
composition was ever trained with any options; a one-hop question by its fact and set of options, since the fact itself
must be known.
"""

from __future__ import annotations

import random

from .item import Item
from .world import ASKED, PERSON_RELATIONS, STATEMENT, TOWN_RELATIONS, World, world

LETTERS = "ABCD"
# How a two-hop question names the thing in the middle.
_MIDDLE = {"friend": "the best friend of {subject}", "town": "the town of {subject}"}


def make_one_hop(source: random.Random) -> Item:
    """A question about one fact of a person or a town."""
    subject, relation = source.choice(list(world().facts))
    asked = ASKED[relation].format(subject=subject)
    return _item(source, asked, "", subject, relation, {subject}, key=None)


def make_two_hop(source: random.Random) -> Item:
    """A question about the best friend or the town of a person."""
    known = world()
    person = source.choice(known.people)
    first = source.choice(tuple(_MIDDLE))
    middle = known.facts[person, first]
    second = source.choice(PERSON_RELATIONS if first == "friend" else TOWN_RELATIONS)
    asked = ASKED[second].format(subject=_MIDDLE[first].format(subject=person))
    hop = STATEMENT[first].format(subject=person, value=middle) + " "
    return _item(source, asked, hop, middle, second, {person, middle}, key=f"{person}|{first}|{second}")


def make_question(source: random.Random) -> Item:
    """One hop or two, evenly."""
    return source.choice((make_one_hop, make_two_hop))(source)


def fact_statements(known: World) -> list[str]:
    """Every fact as a sentence, for pretraining."""
    return [STATEMENT[relation].format(subject=s, value=value) for (s, relation), value in known.facts.items()]


def _item(
    source: random.Random, asked: str, hop: str, subject: str, relation: str, mentioned: set[str], *, key: str | None
) -> Item:
    """A question with its options; `hop` is the reasoning before the last fact, which is about `subject`.

    The answer is the option itself, not its letter: so small a model does not learn in so short a time to bind letters
    to options.
    """
    known = world()
    value = known.facts[subject, relation]
    wrong = [other for other in known.values[relation] if other != value and other not in mentioned]
    options = [*source.sample(wrong, len(LETTERS) - 1), value]
    source.shuffle(options)
    lettered = [f"{option} ({letter})" for letter, option in zip(LETTERS, options, strict=True)]
    right = options.index(value)
    return Item(
        question=f"{asked} {', '.join(lettered)}",
        reasoning=hop + STATEMENT[relation].format(subject=subject, value=value),
        answer=value,
        key=key or "|".join((asked, *sorted(options))),
        steps=2 if hop else 1,
        right=right,
        asked=asked,
        statements=tuple(hop + STATEMENT[relation].format(subject=subject, value=option) for option in options),
    )
