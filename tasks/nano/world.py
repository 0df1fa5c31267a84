"""The small world that the nano tasks are about. It never changes, so a pretrained backbone can know it by heart."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

_WORLD_SEED = 20


def words(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


PEOPLE = words(
    """Abel Ada Agnes Alan Alice Amos Anton Astrid Basil Bella Boris Bruno Camilla Carmen Cecil Chloe Colin Cora Daisy
    Daniel Diana Dora Edgar Edith Edwin Eliza Elsa Emil Eric Esther Felix Fiona Flora Frank Frida George Gilbert Gloria
    Greta Gustav Hanna Harold Hazel Hector Helga Henry Hilda Hugo Igor Irene Iris Ivan Jack Jasper Joan Jonas Judith
    Julian Karen Keith Lars Laura Leo Lucy Lydia Magnus Marion Mia Nadia Nelson Nora Olga Omar Oscar Otto Paula Pedro
    Rita Robert Rosa"""
)
TOWNS = tuple(
    stem + ending for stem in words("Ash Brill Cor Dun Far Hal Mar Ros") for ending in ("by", "ford", "ham", "ley")
)
_THINGS = {
    "pet": words(
        """bear beaver camel canary cat cow crow dog donkey duck falcon ferret fox frog goat goose hamster hare hen
        horse lizard monkey mouse parrot pig pony rabbit raven sheep snake turtle wolf"""
    ),
    "job": words(
        """baker barber butcher carpenter chemist clerk cook dancer dentist doctor driver farmer fisher gardener guard
        hunter judge lawyer miller miner nurse painter pilot plumber poet porter potter printer sailor singer tailor
        weaver"""
    ),
    "river": words(
        """Alba Birk Calder Dorn Esk Flint Garn Hebble Isar Jarrow Kelder Lune Medway Nith Ouse Parrett Quoile Ribble
        Severn Tamar Umber Verney Wear Yarrow"""
    ),
    "colour": words(
        "amber black blue brown crimson golden green grey orange pink purple red silver violet white yellow"
    ),
    "dish": words(
        """beans bread cabbage cheese curry fish honey jam lamb lentils mushrooms noodles olives pancakes pie plums
        porridge pudding rice salad sausages soup stew toffee"""
    ),
}
# For each relation, the sentence that states it (STATEMENT) and the question that asks for it (ASKED).
STATEMENT = {
    "friend": "The best friend of {subject} is {value}.",
    "cousin": "The cousin of {subject} is {value}.",
    "neighbour": "The neighbour of {subject} is {value}.",
    "town": "{subject} lives in {value}.",
    "pet": "{subject} has a {value}.",
    "job": "{subject} works as a {value}.",
    "river": "The river in {subject} is the {value}.",
    "colour": "The flag of {subject} is {value}.",
    "dish": "{subject} is known for {value}.",
}
ASKED = {
    "friend": "Who is the best friend of {subject}?",
    "cousin": "Who is the cousin of {subject}?",
    "neighbour": "Who is the neighbour of {subject}?",
    "town": "Where does {subject} live?",
    "pet": "Which pet does {subject} have?",
    "job": "What is the job of {subject}?",
    "river": "Which river is in {subject}?",
    "colour": "Which colour is the flag of {subject}?",
    "dish": "Which dish is {subject} known for?",
}
# Relations that lead from a person to a person, from a person to a place or thing, and from a town to a thing.
ACQUAINTANCES = ("friend", "cousin", "neighbour")
TRAITS = ("town", "pet", "job")
SIGHTS = ("river", "colour", "dish")


@dataclass(frozen=True)
class World:
    """All facts of the world.

    Attributes:
        facts: (subject, relation) -> value, for every person and every town.
        values: Relation -> every value it can take.
    """

    facts: dict[tuple[str, str], str]
    values: dict[str, tuple[str, ...]]

    def follow(self, subject: str, relations: Sequence[str]) -> list[str]:
        """The subject, followed by what each relation in turn leads to."""
        met = [subject]
        for relation in relations:
            met.append(self.facts[met[-1], relation])
        return met

    def state(self, subject: str, relation: str) -> str:
        """A fact as a sentence."""
        return STATEMENT[relation].format(subject=subject, value=self.facts[subject, relation])


@cache
def world() -> World:
    """The one world of the nano tasks."""
    source = random.Random(_WORLD_SEED)
    values = _THINGS | {"town": TOWNS} | dict.fromkeys(ACQUAINTANCES, PEOPLE)
    facts = {}
    for relation in ACQUAINTANCES:
        ring = source.sample(PEOPLE, len(PEOPLE))
        for person, other in zip(ring, ring[1:] + ring[:1], strict=True):
            facts[person, relation] = other
    for subjects, relations in ((PEOPLE, TRAITS), (TOWNS, SIGHTS)):
        for subject in subjects:
            for relation in relations:
                facts[subject, relation] = source.choice(values[relation])
    return World(facts, values)
