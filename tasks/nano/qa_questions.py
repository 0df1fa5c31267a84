"""Generates `nano_qa`: questions of two or three hops through the world's facts, answered by writing the hops.

No question names anything but the person it starts from and the relations to follow, the last one first; there are no
options. What is held out is the composition (person and relations): every fact of a test question is known, but no
training question ever led the same way. For the log-likelihood form every statement is true, but only one is asked for.
"""

from __future__ import annotations

import random

from .item import Item
from .world import ACQUAINTANCES, ASKED, PEOPLE, SIGHTS, TRAITS, world

OPTIONS = 4
# How a question names what a relation leads to.
_MIDDLE = {
    "friend": "the best friend of {subject}",
    "cousin": "the cousin of {subject}",
    "neighbour": "the neighbour of {subject}",
    "town": "the town of {subject}",
}
# More three-hop compositions exist, so that they repeat less.
_HOPS = (2, 3, 3)


def make_question(source: random.Random) -> Item:
    """A question of two or three hops, with three ways that it does not ask for as wrong statements."""
    hops = source.choice(_HOPS)
    person, relations = source.choice(PEOPLE), _relations(source, hops)
    named = person
    for relation in relations[:-1]:
        named = _MIDDLE[relation].format(subject=named)
    reasoning = _reasoning(person, relations)
    statements = [reasoning]
    while len(statements) < OPTIONS:
        other = _reasoning(person, _relations(source, hops))
        if other not in statements:
            statements.append(other)
    source.shuffle(statements)
    return Item(
        question=ASKED[relations[-1]].format(subject=named),
        reasoning=reasoning,
        answer=world().follow(person, relations)[-1],
        key="|".join((person, *relations)),
        steps=hops,
        right=statements.index(reasoning),
        statements=tuple(statements),
    )


def _reasoning(person: str, relations: tuple[str, ...]) -> str:
    """The facts on the way, one sentence each."""
    known = world()
    met = known.follow(person, relations)
    return " ".join(known.state(subject, relation) for subject, relation in zip(met, relations, strict=False))


def _relations(source: random.Random, hops: int) -> tuple[str, ...]:
    """A way of `hops` relations: from person to person, and to a trait or to a sight of the town at its end."""
    ends = ((trait,) for trait in TRAITS)
    ends_in_town = (("town", sight) for sight in SIGHTS)
    people = ((relation,) for relation in ACQUAINTANCES)
    end = source.choice((*ends, *ends_in_town, *people))
    return (*(source.choice(ACQUAINTANCES) for _ in range(hops - len(end))), *end)
