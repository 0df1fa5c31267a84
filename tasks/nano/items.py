"""One question with its reasoning and answer, in GSM8K's template, with one split point for training and evaluation;
and the splits, which cannot overlap: a hash of an item's key decides, not the seed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from adaptive_bench.task import Example

# The prompt ends right after the colon and the completion starts with a space: a byte-level tokenizer then cuts the
# joined text at exactly this point, so what evaluation continues is what training has seen.
PROMPT = "Question: {question}\nAnswer:"


@dataclass(frozen=True)
class Item:
    """A generated question.

    Attributes:
        question: Everything after `Question: `.
        reasoning: One line, one small step per sentence.
        answer: A whole number or a word.
        key: What decides the split. Two items with the same key always share a split.
        steps: Steps of reasoning, 2 or 3.
        right: Place of the right statement.
        statements: Reasonings of which one belongs to the question; empty where there are none.
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
        """What the model is given."""
        return PROMPT.format(question=self.question)

    @property
    def target(self) -> str:
        """What a perfect model writes, without the leading space."""
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
    """Anything that says what decides its split."""

    @property
    def key(self) -> str: ...


K = TypeVar("K", bound=Keyed)


def split_of(key: str) -> Split:
    """The split a key belongs to, the same on every machine and in every Python."""
    digest = hashlib.sha256(key.encode()).digest()
    return _SPLITS[int.from_bytes(digest[:8], "big") % len(_SPLITS)]


def stream(make: Callable[[random.Random], K], split: Split, seed: int) -> Iterator[K]:
    """Endless items of one split. Candidates of another split are thrown away.

    The split is part of the random seed too, so that equal seeds of two splits do not share their candidates.
    """
    source = random.Random(f"{split}/{seed}")
    while True:
        item = make(source)
        if split_of(item.key) == split:
            yield item


def distinct(items: Iterator[K]) -> Iterator[K]:
    """The same items, each key once."""
    seen = set()
    for item in items:
        if item.key not in seen:
            seen.add(item.key)
            yield item
