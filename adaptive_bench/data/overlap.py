"""Counts how many test documents occur in a training text.

The rule is that of lm-eval's decontamination and of GPT-3 (arXiv 2005.14165, appendix C). Words are separated by white
space, after ASCII punctuation is removed and ASCII letters are lowered. A document occurs in a text if any thirteen
consecutive words of its question do; of a question of eight to twelve words, all must occur in a row. A shorter
question, which lm-eval does not count, must equal a whole prompt (or a whole text without a prompt), character by
character. Words that all questions of a task begin or end with belong to the task's template, and are left out.
"""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RUN, FEWEST = 13, 8  # words
_WORDS = str.maketrans(string.ascii_uppercase, string.ascii_lowercase, string.punctuation)
_UNKNOWN = -1
_BLOCK = 1 << 16  # words of training text that are compared at once


class OverlapCounter:
    """Finds which of some questions occur in the training texts it was shown.

    It holds 16 bytes for each word of the questions, each different word once, and one block of the texts at a time.
    """

    def __init__(self, questions: Sequence[str]) -> None:
        self._found: NDArray[np.bool_] = np.zeros(len(questions), dtype=bool)
        self._block: list[int] = []
        # A digest is a sum of word number * factor, modulo 2^64. Factors are odd, so that no bit of a number is lost.
        self._factors = np.random.default_rng(0).integers(1 << 63, size=RUN, dtype=np.uint64) * np.uint64(2)
        self._factors += np.uint64(1)
        self._numbers: dict[str, int] = {}
        self._short: dict[str, list[int]] = {}
        runs: dict[int, list[tuple[NDArray[np.uint64], int]]] = {}
        for place, words in enumerate(_without_template(questions)):
            if len(words) < FEWEST:
                # Kept whole, template included: it is compared with whole prompts.
                self._short.setdefault(questions[place].strip(), []).append(place)
                continue
            numbers = np.array([self._numbers.setdefault(word, len(self._numbers)) for word in words])
            length = min(RUN, len(words))
            runs.setdefault(length, []).append((self._digests(numbers, length), place))
        self._runs = {}
        for length, some in runs.items():
            digests = np.concatenate([digests for digests, _ in some])
            places = np.repeat([place for _, place in some], [len(digests) for digests, _ in some])
            # Sorted by digest, with the question of each, for a binary search.
            order = np.argsort(digests)
            self._runs[length] = digests[order], places[order]

    def look(self, asked: str, words: Sequence[str]) -> None:
        """Note which questions occur in a training text, given its prompt (the whole text if it has none) and the
        `words_of` the whole text.
        """
        self._found[self._short.get(asked.strip(), [])] = True
        number = self._numbers.get
        self._block += [number(word, _UNKNOWN) for word in words]
        self._block.append(_UNKNOWN)  # ends every run of words, so that none continues in the next text
        if len(self._block) > _BLOCK:
            self._compare()

    def __len__(self) -> int:
        return len(self._found)

    @property
    def found(self) -> int:
        """Number of questions that occur in the texts."""
        self._compare()
        return int(self._found.sum())

    def _compare(self) -> None:
        numbers, self._block = np.array(self._block, dtype=np.int64), []
        for length, (digests, places) in self._runs.items():
            there = self._digests(numbers, length)
            # Several questions may have a run in common: they are neighbours.
            starts, ends = (np.searchsorted(digests, there, side) for side in ("left", "right"))
            for start, end in zip(starts[starts < ends], ends[starts < ends], strict=True):
                self._found[places[start:end]] = True

    def _digests(self, numbers: NDArray[np.int64], length: int) -> NDArray[np.uint64]:
        """Return a digest of each run of `length` words that are all known."""
        unknown = np.concatenate([[0], np.cumsum(numbers == _UNKNOWN)])
        # Starts of runs in which the count of unknown words does not grow.
        starts = np.flatnonzero(unknown[length:] == unknown[:-length])
        digests: NDArray[np.uint64] = np.zeros(len(starts), dtype=np.uint64)
        for place, factor in enumerate(self._factors[:length]):
            digests += numbers[starts + place].astype(np.uint64) * factor
        return digests


def words_of(text: str) -> list[str]:
    """Return the words of a text, by the rule above."""
    return text.translate(_WORDS).split()


def _without_template(questions: Sequence[str]) -> list[list[str]]:
    every = [words_of(question) for question in questions]
    # A single question would be all template.
    if len(set(questions)) < 2:
        return every
    start = _begin_alike(every)
    every = [words[start:] for words in every]
    end = _begin_alike([words[::-1] for words in every])
    return [words[: len(words) - end] for words in every]


def _begin_alike(every: list[list[str]]) -> int:
    """Return how many first words all lists share; it is enough to compare the lists that sort first and last."""
    both = list(zip(min(every), max(every), strict=False))
    return next((place for place, (one, other) in enumerate(both) if one != other), len(both))
