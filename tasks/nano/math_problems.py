"""Generates `nano_math`: word problems of one to three steps whose every number stays below 130.

Three families: a chain of changes to one pile, equal groups followed by changes, and a comparison of two people.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from .item import Item

_SHE = ("Mia", "Ana", "Zoe", "Eva", "Lily", "Nora", "Ruby", "Ivy", "Emma", "Rosa")
_HE = ("Leo", "Tom", "Ben", "Max", "Sam", "Noah", "Finn", "Omar", "Hugo", "Ivan")
_PRONOUN = dict.fromkeys(_SHE, "She") | dict.fromkeys(_HE, "He")
_NAMES = _SHE + _HE
_THINGS = (
    "apples", "pens", "books", "coins", "cards", "shells", "stamps", "marbles", "cookies", "stickers",
    "pears", "beads", "stones", "eggs", "balls", "flowers", "candles", "buttons", "nuts", "tickets",
)  # fmt: skip
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


@dataclass
class _Story:
    """A problem under construction: what is told, what is computed, and the value so far."""

    source: random.Random
    told: list[str] = field(default_factory=list)
    computed: list[str] = field(default_factory=list)
    value: int = 0

    def compute(self, left: int, sign: str, right: int, sentence: str) -> int:
        """Writes one step; `sentence` has a place for the `computation`."""
        result = {"+": left + right, "-": left - right, "*": left * right}[sign]
        self.computed.append(sentence.format(computation=f"{left} {sign} {right} = {result}"))
        self.value = result
        return result

    def change(self, who: str, other: str) -> None:
        """One gain, loss or multiplication that keeps the value between 1 and the largest number."""
        sentence = "Then {computation}." if self.computed else f"{who} has {{computation}}."
        subject = self.source.choice((who, _PRONOUN[who], _PRONOUN[who]))
        kind = self.source.choice("++--*")
        if kind == "*" and self.value <= 20:
            factor = self.source.choice(tuple(_TIMES))
            self.told.append(f"{subject} {_TIMES[factor]} them.")
            self.compute(self.value, "*", factor, sentence)
        elif (kind == "-" and self.value > 2) or self.value > 79:
            n = self.source.randint(1, min(self.value - 1, 20))
            self.told.append(self.source.choice(_LOSSES).format(who=subject, n=n, other=other))
            self.compute(self.value, "-", n, sentence)
        else:
            n = self.source.randint(2, 20)
            self.told.append(self.source.choice(_GAINS).format(who=subject, n=n, other=other))
            self.compute(self.value, "+", n, sentence)


def _chain(story: _Story, steps: int, who: str, other: str, things: str) -> str:
    story.value = story.source.randint(3, 40)
    story.told.append(f"{who} has {story.value} {things}.")
    for _ in range(steps):
        story.change(who, other)
    return f"How many {things} does {who} have now?"


def _groups(story: _Story, steps: int, who: str, other: str, things: str) -> str:
    count, size = story.source.randint(2, 6), story.source.randint(2, 9)
    story.told.append(f"{who} has {count} {story.source.choice(_BOXES)} with {size} {things} in each.")
    story.compute(count, "*", size, f"{who} has {{computation}}.")
    for _ in range(steps - 1):
        story.change(who, other)
    return f"How many {things} does {who} have now?"


def _compare(story: _Story, steps: int, who: str, other: str, things: str) -> str:
    first = story.source.randint(3, 25)
    story.told.append(f"{who} has {first} {things}.")
    kind = story.source.choice("+-*")
    if kind == "*" and first <= 20:
        factor = story.source.choice(tuple(_TIMES_AS_MANY))
        story.told.append(f"{other} has {_TIMES_AS_MANY[factor]} as many as {who}.")
        second = story.compute(first, "*", factor, f"{other} has {{computation}}.")
    elif kind == "-":
        fewer = story.source.randint(1, first - 1)
        story.told.append(f"{other} has {fewer} fewer than {who}.")
        second = story.compute(first, "-", fewer, f"{other} has {{computation}}.")
    else:
        more = story.source.randint(2, 20)
        story.told.append(f"{other} has {more} more than {who}.")
        second = story.compute(first, "+", more, f"{other} has {{computation}}.")
    if steps == 1:
        return f"How many {things} does {other} have?"
    together = story.compute(first, "+", second, "Together {computation}.")
    if steps == 2:
        return f"How many {things} do they have together?"
    lost = story.source.randint(1, min(together - 1, 20))
    story.told.append(f"Together they lose {lost}.")
    story.compute(together, "-", lost, "Then {computation}.")
    return f"How many {things} are left?"


_FAMILIES = (_chain, _chain, _groups, _compare)


def make_math_problem(source: random.Random) -> Item:
    """One problem of a random family with one, two or three steps."""
    steps = source.choice((1, 2, 2, 3, 3))
    family = source.choice(_FAMILIES)
    who, other = source.sample(_NAMES, 2)
    story = _Story(source)
    asked = family(story, steps, who, other, source.choice(_THINGS))
    question = " ".join((*story.told, asked))
    return Item(question, " ".join(story.computed), str(story.value), key=question, steps=len(story.computed))
