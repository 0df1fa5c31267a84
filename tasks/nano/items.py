"""Items (a question with its reasoning and answer, in GSM8K's template) and their splits.

A hash of an item's key decides its split, not the seed, so splits cannot overlap.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from adaptive_bench.task import Example

from ..template import PROMPT

TEST_SEED = 3089


@dataclass(frozen=True)
class Item:
    """A generated question.

    Attributes:
        question: Everything after `Question: `.
        reasoning: One line, one small step per sentence.
        answer: A whole number or a word.
        key: Decides the split. Two items with the same key always share a split.
        steps: Number of reasoning steps, 2 or 3.
        right: Index of the right statement.
        statements: Reasonings, one of which belongs to the question; empty for a question without options.
    """

    question: str
    reasoning: str
    answer: str
    key: str
    steps: int
    right: int = 0
    statements: tuple[str, ...] = ()

    @property
    def prompt(self) -> str:
        """The prompt that the model is given."""
        return PROMPT.format(question=self.question)

    @property
    def target(self) -> str:
        """The text that a perfect model writes, without the leading space."""
        return f"{self.reasoning}\n#### {self.answer}"

    def reasoned(self) -> Example:
        """The generative form: reasoning, then the answer."""
        return Example(prompt=self.prompt, completion=f" {self.target}")

    def stated(self) -> Example:
        """The log-likelihood form: the reasoning alone, which ends with the answer."""
        return Example(prompt=self.prompt, completion=f" {self.reasoning}")


Split = Literal["train", "calibration", "validation", "test"]
# Ten buckets: 0-6 train, 7 calibration (thresholds), 8 validation (everything that is tuned by hand), 9 test.
_SPLITS: tuple[Split, ...] = ("train",) * 7 + ("calibration", "validation", "test")


class Keyed(Protocol):
    """Anything with a key that decides its split."""

    @property
    def key(self) -> str: ...


K = TypeVar("K", bound=Keyed)


def split_of(key: str) -> Split:
    """The split that a key belongs to, the same on every machine and in every Python version."""
    digest = hashlib.sha256(key.encode()).digest()
    return _SPLITS[int.from_bytes(digest[:8], "big") % len(_SPLITS)]


def stream(make: Callable[[random.Random], K], split: Split, seed: int) -> Iterator[K]:
    """Generates items of one split without end. Candidates that fall into another split are discarded.

    The split is part of the random seed too, so that equal seeds of two splits do not share candidates.
    """
    source = random.Random(f"{split}/{seed}")
    while True:
        item = make(source)
        if split_of(item.key) == split:
            yield item


def held_out(make: Callable[[random.Random], K], split: Split, count: int) -> list[K]:
    """The first `count` distinct items of a split; nothing is tuned on those of `test`."""
    found: dict[str, K] = {}
    items = stream(make, split, TEST_SEED)
    while len(found) < count:
        item = next(items)
        found.setdefault(item.key, item)
    return list(found.values())
