"""Generates `nano_math`: word problems of two to four steps whose every number stays below 140.

Three families: a chain of changes to one pile, equal groups followed by changes, and a comparison of two people. The
events are the ones that the world's stories tell; a story says the result after each of them, a problem only asks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from .item import Item
from .world import PEOPLE, words

THINGS = words(
    """apples badges balls beads berries biscuits books bricks buttons cakes candles caps cards cherries chips coins
    combs cookies corks crayons cubes dolls eggs figs flowers gems grapes jars kites leaves lemons marbles melons
    mugs nails nuts oranges peaches pears pebbles pencils pens pins plants plums postcards posters potatoes puppets
    ribbons rings robots roses seeds shells socks spoons stamps stars stickers stones straws sweets tickets tiles
    tokens toys tulips"""
)
_BOXES = ("boxes", "bags", "packs", "baskets")
_GAINS = (
    "{who} buys {n} more.",
    "{who} finds {n} more.",
    "{who} gets {n} more from {other}.",
    "{other} brings {n} more.",
)
_LOSSES = ("{who} loses {n}.", "{who} sells {n}.", "{who} gives {n} to {other}.", "{other} takes {n} away.")
_TIMES = {2: "doubles", 3: "triples"}
_TIMES_AS_MANY = {2: "twice", 3: "three times"}
_STEPS = (2, 2, 3, 3, 4)


@dataclass(frozen=True)
class Computation:
    """One step: two numbers, a sign, and what they come to."""

    left: int
    sign: str
    right: int

    @property
    def result(self) -> int:
        """Its value."""
        return {"+": self.left + self.right, "-": self.left - self.right, "*": self.left * self.right}[self.sign]

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right} = {self.result}"


@dataclass
class Tale:
    """What happens to a pile of things: sentences, each with the computation that it asks for, if any."""

    source: random.Random
    who: str
    other: str
    things: str
    told: list[tuple[str, Computation | None]] = field(default_factory=list)
    value: int = 0

    def tell(self, sentence: str, sign: str = "", right: int = 0) -> None:
        """Adds an event; with a sign, one that changes the value."""
        computation = Computation(self.value, sign, right) if sign else None
        self.told.append((sentence, computation))
        if computation:
            self.value = computation.result

    def start(self, low: int = 3, high: int = 30) -> None:
        """A pile of a size that is told."""
        self.value = self.source.randint(low, high)
        self.tell(f"{self.who} has {self.value} {self.things}.")

    def groups(self) -> None:
        """A pile of equal groups."""
        self.value, size = self.source.randint(2, 6), self.source.randint(2, 9)
        boxes = self.source.choice(_BOXES)
        self.tell(f"{self.who} has {self.value} {boxes} with {size} {self.things} in each.", "*", size)

    def change(self) -> None:
        """One gain, loss or multiplication that keeps the value between 1 and 60."""
        kind = self.source.choice("++--*")
        if kind == "*" and self.value <= 20:
            factor = self.source.choice(tuple(_TIMES))
            self.tell(f"{self.who} {_TIMES[factor]} them.", "*", factor)
        elif (kind == "-" and self.value > 2) or self.value > 45:
            n = self.source.randint(1, min(self.value - 1, 15))
            self.tell(self.source.choice(_LOSSES).format(who=self.who, n=n, other=self.other), "-", n)
        else:
            n = self.source.randint(2, 15)
            self.tell(self.source.choice(_GAINS).format(who=self.who, n=n, other=self.other), "+", n)

    def compare(self) -> None:
        """The pile of the other one, told as more, fewer or so many times the value, which it becomes."""
        kind = self.source.choice("+-*")
        if kind == "*" and self.value <= 20:
            factor = self.source.choice(tuple(_TIMES_AS_MANY))
            self.tell(f"{self.other} has {_TIMES_AS_MANY[factor]} as many as {self.who}.", "*", factor)
        elif kind == "-" and self.value > 1:
            n = self.source.randint(1, min(self.value - 1, 15))
            self.tell(f"{self.other} has {n} fewer than {self.who}.", "-", n)
        else:
            n = self.source.randint(2, 15)
            self.tell(f"{self.other} has {n} more than {self.who}.", "+", n)


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
    tale.start(high=20)
    for _ in range(steps - 2):
        tale.change()
    first = tale.value
    tale.compare()
    tale.tell("", "+", first)
    return f"How many {tale.things} do they have together?"


_FAMILIES = (_chain, _chain, _groups, _compare)


def make_math_problem(source: random.Random) -> Item:
    """One problem of a random family with two to four steps."""
    tale = new_tale(source)
    asked = source.choice(_FAMILIES)(tale, source.choice(_STEPS))
    question = " ".join((*(sentence for sentence, _ in tale.told if sentence), asked))
    computed = [f"{computation}." for _, computation in tale.told if computation]
    return Item(question, " ".join(computed), str(tale.value), key=question, steps=len(computed))
