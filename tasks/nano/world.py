"""The small world that `nano_qa` asks about. It never changes, so that a pretrained backbone can know it by heart."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

_WORLD_SEED = 20
_PEOPLE = (
    "Abel", "Ada", "Basil", "Carla", "Dario", "Diana", "Edgar", "Elsa", "Felix", "Fiona", "Gregor", "Greta",
    "Hector", "Helga", "Igor", "Irene", "Jasper", "Judith", "Lars", "Lydia", "Nelson", "Olga", "Pedro", "Rita",
)  # fmt: skip
_TOWNS = ("Ashby", "Brill", "Corve", "Dunmore", "Elton", "Farley", "Gorse", "Halden")
_VALUES = {
    "pet": ("cat", "dog", "hen", "goat", "horse", "parrot", "rabbit", "snake"),
    "job": ("baker", "doctor", "farmer", "judge", "miner", "nurse", "pilot", "tailor"),
    "river": ("Alba", "Birk", "Dorn", "Esk", "Flint", "Isar", "Lune", "Nith"),
    "colour": ("black", "blue", "brown", "green", "grey", "red", "white", "yellow"),
    "dish": ("bread", "cheese", "curry", "fish", "honey", "pie", "rice", "soup"),
}
# Relation -> the sentence that states it, and how a question asks for it.
STATEMENT = {
    "town": "{subject} lives in {value}.",
    "friend": "The best friend of {subject} is {value}.",
    "pet": "{subject} has a {value}.",
    "job": "{subject} works as a {value}.",
    "river": "The river in {subject} is the {value}.",
    "colour": "The flag of {subject} is {value}.",
    "dish": "{subject} is known for {value}.",
}
ASKED = {
    "town": "Where does {subject} live?",
    "friend": "Who is the best friend of {subject}?",
    "pet": "Which pet does {subject} have?",
    "job": "What is the job of {subject}?",
    "river": "Which river is in {subject}?",
    "colour": "Which colour is the flag of {subject}?",
    "dish": "Which dish is {subject} known for?",
}
PERSON_RELATIONS = ("town", "friend", "pet", "job")
TOWN_RELATIONS = ("river", "colour", "dish")


@dataclass(frozen=True)
class World:
    """All facts.

    Attributes:
        people: Their names.
        towns: Their names.
        facts: (subject, relation) -> value, for every person and every town.
        values: Relation -> every value it can take; wrong options come from here.
    """

    people: tuple[str, ...]
    towns: tuple[str, ...]
    facts: dict[tuple[str, str], str]
    values: dict[str, tuple[str, ...]]


@cache
def world() -> World:
    """The one world of the nano tasks."""
    source = random.Random(_WORLD_SEED)
    values = {**_VALUES, "town": _TOWNS, "friend": _PEOPLE}
    facts = {}
    for person in _PEOPLE:
        for relation in ("town", "pet", "job"):
            facts[person, relation] = source.choice(values[relation])
    ring = source.sample(_PEOPLE, len(_PEOPLE))
    for person, friend in zip(ring, ring[1:] + ring[:1], strict=True):
        facts[person, "friend"] = friend
    for relation in TOWN_RELATIONS:
        for town, value in zip(_TOWNS, source.sample(values[relation], len(_TOWNS)), strict=True):
            facts[town, relation] = value
    return World(_PEOPLE, _TOWNS, facts, values)
