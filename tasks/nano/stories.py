"""Generates the world's stories: the backbone's pretraining text, and the held-out text of `nano_text`.

A story opens with a scene, walks along the facts of the world, and tells of a pile of things, with the result after
each event. Stories and the shorter texts contain the ingredients of the tasks (facts, single computations, and the
numbers of a tale in their order), but no question, no answer, and never two steps of reasoning in a row.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from adaptive_bench.task import Example

from .questions import THINGS, Computation, Tale, new_tale
from .world import ACQUAINTANCES, PEOPLE, SIGHTS, TOWNS, TRAITS, words, world

_WEATHER = words(
    """awful bitter bright busy calm chilly cloudy cold cool crisp damp dark dull dry dusty fair fine foggy freezing
    fresh frosty gloomy grim hot icy lovely mild misty quiet rainy silent snowy stormy sunny sweet warm wet wild
    windy"""
)
_TIMES = words("morning noon afternoon evening night day")
_MONTHS = words("January February March April May June July August September October November December")
_WALKS = words(
    "climbs cycles drives hurries marches returns rides runs rushes sails skates travels trots walks wanders"
)
_LOOKS = words(
    """ancient broken burnt clean crowded dirty empty famous flooded forgotten great hidden huge little locked lonely
    narrow new old open painted proud ruined sleepy small stone tall tiny ugly wooden"""
)
_PLACES = words(
    """abbey bakery bank barn beach bridge canal castle cave cellar chapel church cinema cliff college cottage dairy
    farm ferry field forest forge fountain garage garden gate hall harbour hill hospital hotel inn island kitchen
    lake library lodge market meadow mill mine monastery museum orchard palace park port prison quarry school shop
    square stable station temple tent theatre tower tunnel valley village well"""
)
_CARRIED = words(
    """anchor axe barrel basket bell bottle bowl box brush bucket candle carpet chain chair clock coat compass crown
    cup drum fan feather flag flute fork hammer hat helmet jacket jug kettle key kite knife ladder lamp lantern
    letter map mask mirror needle net paddle pan parcel pillow pipe plate pot purse ring rope sack saddle saw scarf
    shield shovel spade spoon stick sword torch towel trumpet trunk umbrella vase violin wheel whistle"""
)
# Other ways to state a fact, which only stories use.
_SAID = {
    "friend": "{subject} likes nobody better than {value}.",
    "cousin": "{subject} has a cousin called {value}.",
    "neighbour": "Next to {subject} lives {value}.",
    "town": "The home of {subject} is {value}.",
    "pet": "{subject} keeps a {value}.",
    "job": "{subject} earns money as a {value}.",
    "river": "Through {subject} flows the {value}.",
    "colour": "{subject} shows a flag of {value}.",
    "dish": "People in {subject} love {value}.",
}
_FACTS = (3, 4, 5)
_CHANGES = (1, 2, 3)
_SAID_OTHERWISE, _GROUPS, _COMPARED = 0.3, 0.3, 0.3  # shares
_STATEMENTS = 8
_SUMS = 10


@dataclass(frozen=True)
class Story:
    """A text of the world. It is its own key: equal texts share a split.

    Attributes:
        pieces: The text in order, in pieces; the flag of a piece says whether a reader who knows the world could
            predict it from what came before.
    """

    pieces: tuple[tuple[str, bool], ...]

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(piece for piece, _ in self.pieces)

    @property
    def key(self) -> str:
        """The text, which decides the split."""
        return self.text

    def told(self) -> Example:
        """A training example without a prompt: the whole text is learned."""
        return Example(prompt="", completion=self.text)


def make_story(source: random.Random) -> Story:
    """A scene, some facts, and a pile of things."""
    known = world()
    person = subject = source.choice(PEOPLE)
    pieces = [(_scene(source, person), False)]
    said: set[tuple[str, str]] = set()
    for _ in range(source.choice(_FACTS)):
        relations = SIGHTS if subject in TOWNS else ACQUAINTANCES + TRAITS
        relation = source.choice([one for one in relations if (subject, one) not in said])
        said.add((subject, relation))
        value = known.facts[subject, relation]
        otherwise = source.random() < _SAID_OTHERWISE
        pieces += _fact(_SAID[relation].format(subject=subject, value=value) if otherwise
                        else known.state(subject, relation))  # fmt: skip
        subject = source.choice((value, person)) if relation in (*ACQUAINTANCES, "town") else person
    pieces += _pile(source, person)
    return _story(pieces)


def make_statements(source: random.Random) -> Story:
    """A list of facts."""
    known = world()
    facts = source.sample(list(known.facts), _STATEMENTS)
    return _story([piece for subject, relation in facts for piece in _fact(known.state(subject, relation))])


def make_sums(source: random.Random) -> Story:
    """A list of computations with numbers as large as those of problems."""
    pieces: list[tuple[str, bool]] = []
    for _ in range(_SUMS):
        kind = source.choice("+++---*g")
        if kind == "g":
            computation = Computation(source.randint(2, 5), "*", source.randint(2, 6))
        elif kind == "*":
            factor = source.choice((2, 3))
            computation = Computation(source.randint(1, 30 // factor), "*", factor)
        elif kind == "-":
            left = source.randint(2, 30)
            computation = Computation(left, "-", source.randint(1, min(left - 1, 9)))
        else:
            computation = Computation(source.randint(1, 30), "+", source.randint(1, 9))
        pieces += [(f" {computation.left} {computation.sign} {computation.right} =", False)]
        pieces += [(f" {computation.result}.", True)]
    return _story(pieces)


def make_summary(source: random.Random) -> Story:
    """A tale of a pile, and then a short list of its numbers, without the results."""
    tale = new_tale(source)
    starts_with_groups = source.random() < _GROUPS
    if starts_with_groups:
        tale.groups()
    else:
        tale.start()
    for _ in range(source.choice(_CHANGES)):
        tale.change()
    if not starts_with_groups and source.random() < _COMPARED:
        tale.compare()
    computed = [(event.label, done) for event in tale.told if (done := event.computation)]
    short = [str(computed[0][1].left), *(f"{label}{done.sign} {done.right}" for label, done in computed)]
    told = [(f" {event.sentence}", False) for event in tale.told]
    return _story([*told, (" In short", False), (f" {', '.join(short)}.", True)])


def _story(pieces: list[tuple[str, bool]]) -> Story:
    """A story of pieces that each begin with a space, where the tokenizer cuts anyway; the first loses its space."""
    (first, known), *rest = pieces
    return Story(((first.removeprefix(" "), known), *rest))


def _fact(sentence: str) -> list[tuple[str, bool]]:
    """A sentence that states a fact, split before its last word, which is the fact's value."""
    start, _, value = sentence.rpartition(" ")
    return [(f" {start}", False), (f" {value}", True)]


def _scene(source: random.Random, person: str) -> str:
    """A sentence that says where a person goes, when, and with what."""
    weather, time, month, walks, looks, place, carried = map(
        source.choice, (_WEATHER, _TIMES, _MONTHS, _WALKS, _LOOKS, _PLACES, _CARRIED)
    )
    return f"One {weather} {time} in {month}, {person} {walks} to the {looks} {place} with the {carried}."


def _pile(source: random.Random, person: str) -> list[tuple[str, bool]]:
    """One or two events, each with its result."""
    other = source.choice([name for name in PEOPLE if name != person])
    tale = Tale(source, person, other, source.choice(THINGS))
    if source.random() < _GROUPS:
        tale.groups()
        tale.change()
    elif source.random() < _COMPARED:
        tale.start()
        tale.compare()
    else:
        tale.start()
        tale.change()
        tale.change()
    pieces = []
    for event in tale.told:
        pieces += [(f" {event.sentence}", False)]
        pieces += [(f" That makes {event.computation}.", True)] if event.computation else []
    return pieces
