"""Generates the questions of `nano_math` and `nano_qa`.

`nano_math`: word problems of two or three steps in which every number stays below 40. There are three families: a chain
of changes to one pile, equal groups followed by changes, and a comparison of two people. The events are those that the
world's stories tell; a story states the result after each event, a problem only asks for it. A step of the reasoning
begins with the day or person of its event, so that the model can find the number, which follows that word in the
problem.

`nano_qa`: questions of two or three hops through the world's facts, answered by writing the hops. A question names only
the person it starts from and the relations to follow, the last one first; there are no options. The composition (person
and relations) is held out: every fact of a test question is known, but no training question combines them in the same
way. In the log-likelihood form every statement is true, but only one is asked for.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from .items import Item
from .world import ACQUAINTANCES, ASKED, PEOPLE, SIGHTS, TRAITS, words, world

THINGS = words(
    """apples badges balls beads berries biscuits books bricks buttons cakes candles caps cards cherries chips coins
    combs cookies corks crayons cubes dolls eggs figs flowers gems grapes jars kites leaves lemons marbles melons
    mugs nails nuts oranges peaches pears pebbles pencils pens pins plants plums postcards posters potatoes puppets
    ribbons rings robots roses seeds shells socks spoons stamps stars stickers stones straws sweets tickets tiles
    tokens toys tulips"""
)
_BOXES = ("boxes", "bags", "packs", "baskets")
_DAYS = words("Monday Tuesday Wednesday")
_GAINS = ("{n} arrive.", "{n} appear.", "{n} turn up.", "{n} come from {other}.")
_LOSSES = ("{n} break.", "{n} vanish.", "{n} get lost.", "{n} go to {other}.")
_TIMES = {2: "they double.", 3: "they triple."}
_TIMES_AS_MANY = {2: "twice", 3: "three times"}
# Small enough for a small model to know the arithmetic by heart.
_CHANGE = (2, 9)
_LARGEST_PILE, _LARGEST_COMPARED_PILE = 30, 9
_STEPS = (2, 3)


@dataclass(frozen=True)
class Computation:
    """One step of arithmetic: two numbers, a sign, and the result."""

    left: int
    sign: str
    right: int

    @property
    def result(self) -> int:
        """The value of the computation."""
        return {"+": self.left + self.right, "-": self.left - self.right, "*": self.left * self.right}[self.sign]

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right} = {self.result}"


@dataclass(frozen=True)
class Event:
    """An event of a tale.

    Attributes:
        sentence: The sentence that tells it; empty if it is not told.
        label: The word that identifies it, its day or person, followed by a space; empty at the start of a tale.
        computation: What it does to the pile, if anything.
    """

    sentence: str
    label: str = ""
    computation: Computation | None = None


@dataclass
class Tale:
    """The events of a pile of things, whose size is `value` and, after a change, at most `most`."""

    source: random.Random
    who: str
    other: str
    things: str
    most: int = _LARGEST_PILE
    told: list[Event] = field(default_factory=list)
    value: int = 0
    days: int = 0

    def tell(self, sentence: str, sign: str, right: int, label: str = "") -> None:
        """Adds an event that changes the value."""
        computation = Computation(self.value, sign, right)
        self.told.append(Event(sentence, label, computation))
        self.value = computation.result

    def start(self, low: int = 3, high: int = 20) -> None:
        """Starts with a pile whose size is told."""
        self.value = self.source.randint(low, min(high, self.most))
        self.told.append(Event(f"{self.who} has {self.value} {self.things}."))

    def groups(self) -> None:
        """Starts with a pile of equal groups."""
        self.value, size = self.source.randint(2, 5), self.source.randint(2, 6)
        boxes = self.source.choice(_BOXES)
        self.tell(f"{self.who} has {self.value} {boxes} with {size} {self.things} in each.", "*", size)

    def change(self) -> None:
        """Adds one gain, loss or multiplication, on the next day."""
        gains, losses = self._amounts(self.most - self.value), self._amounts(self.value - 1)
        factors = [factor for factor in _TIMES if self.value * factor <= self.most]
        sign = self.source.choice("++" * bool(gains) + "--" * bool(losses) + "*" * bool(factors))
        n = self.source.choice({"+": gains, "-": losses, "*": factors}[sign])
        event = _TIMES[n] if sign == "*" else self.source.choice(_GAINS if sign == "+" else _LOSSES)
        day = _DAYS[self.days]
        self.days += 1
        self.tell(f"On {day} {event.format(n=n, other=self.other)}", sign, n, f"{day} ")

    def compare(self) -> None:
        """Adds the other person's pile, told as more, fewer or some times as many; its size becomes the value."""
        amounts = {
            "+": self._amounts(_CHANGE[1]),
            "-": self._amounts(self.value - 1),
            "*": list(_TIMES_AS_MANY) if self.value <= _LARGEST_COMPARED_PILE else [],
        }
        sign = self.source.choice([sign for sign, open_to in amounts.items() if open_to])
        n = self.source.choice(amounts[sign])
        compared = {"+": "{n} more than", "-": "{n} fewer than", "*": "{times} as many as"}[sign]
        compared = compared.format(n=n, times=_TIMES_AS_MANY.get(n))
        self.tell(f"{self.other} has {compared} {self.who}.", sign, n, f"{self.other} ")

    @staticmethod
    def _amounts(most: int) -> list[int]:
        return list(range(_CHANGE[0], min(_CHANGE[1], most) + 1))


def new_tale(source: random.Random) -> Tale:
    """An empty tale of two people and some things."""
    who, other = source.sample(PEOPLE, 2)
    return Tale(source, who, other, source.choice(THINGS))


def _chain(tale: Tale, steps: int) -> str:
    tale.start()
    for _ in range(steps):
        tale.change()
    return f"How many {tale.things} does {tale.who} have now?"


def _groups(tale: Tale, steps: int) -> str:
    tale.groups()
    for _ in range(steps - 1):
        tale.change()
    return f"How many {tale.things} does {tale.who} have now?"


def _compare(tale: Tale, steps: int) -> str:
    tale.most = _LARGEST_COMPARED_PILE
    tale.start()
    for _ in range(steps - 2):
        tale.change()
    first = tale.value
    tale.compare()
    tale.tell("", "+", first, "Together ")
    return f"How many {tale.things} do they have together?"


_FAMILIES = (_chain, _chain, _groups, _compare)


def make_math_problem(source: random.Random) -> Item:
    """One problem of a random family with two or three steps."""
    tale = new_tale(source)
    asked = source.choice(_FAMILIES)(tale, source.choice(_STEPS))
    question = " ".join((*(event.sentence for event in tale.told if event.sentence), asked))
    computed = [f"{event.label}{event.computation}." for event in tale.told if event.computation]
    return Item(question, " ".join(computed), str(tale.value), key=question, steps=len(computed))


OPTIONS = 4
# How a question names the person or town that a relation leads to.
_MIDDLE = {
    "friend": "the best friend of {subject}",
    "cousin": "the cousin of {subject}",
    "neighbour": "the neighbour of {subject}",
    "town": "the town of {subject}",
}
# Three hops are drawn twice as often: more compositions exist of them, so they repeat less.
_HOPS = (2, 3, 3)


def make_question(source: random.Random) -> Item:
    """A question of two or three hops; the wrong statements are three paths that it does not ask for."""
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
    """The facts along the path, one sentence each."""
    known = world()
    met = known.follow(person, relations)
    return " ".join(known.state(subject, relation) for subject, relation in zip(met, relations, strict=False))


def _relations(source: random.Random, hops: int) -> tuple[str, ...]:
    """A path of `hops` relations from person to person, ending at a person, a trait or a sight of a town."""
    ends = ((trait,) for trait in TRAITS)
    ends_in_town = (("town", sight) for sight in SIGHTS)
    people = ((relation,) for relation in ACQUAINTANCES)
    end = source.choice((*ends, *ends_in_town, *people))
    return (*(source.choice(ACQUAINTANCES) for _ in range(hops - len(end))), *end)
