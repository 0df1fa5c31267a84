"""What kind of token a token is: first, end, digits, an operator, punctuation, a function word, another word.

The kind of a piece of a word or number is the whole one's, so that a tokenizer's cuts do not decide it. Function words
are English.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from importlib.resources import files
from itertools import accumulate

KINDS = ("first", "end", "digits", "operator", "punctuation", "function word", "other word", "space", "other")
_OPERATORS = frozenset("+-*/=<>×÷−·%^±≤≥≠≈")
_NUMBER_OR_WORD = re.compile(r"\d(?:[\d.,:]*\d)?|[^\W\d_]+(?:['’][^\W\d_]+)*")
_CONTRACTED = re.compile(r"(?:n['’]t|['’](?:s|m|d|re|ve|ll))$")
# English closed word classes: articles, prepositions, pronouns, conjunctions, auxiliaries, and words that ask.
FUNCTION_WORDS = frozenset(files(__package__).joinpath("function_words.txt").read_text(encoding="utf-8").split())


def kinds_of(pieces: Sequence[str], token_ids: Sequence[int], ends: Collection[int]) -> list[str]:
    """The kind of each token of a text, one of `KINDS`.

    Args:
        pieces: Of each token its part of the text.
        ends: Token ids that end a text.
    """
    words = _words_of(pieces)
    found = []
    for place, (piece, token, word) in enumerate(zip(pieces, token_ids, words, strict=True)):
        if place == 0:
            found.append("first")
        elif token in ends:
            found.append("end")
        else:
            found.append(_kind(piece.strip(), word))
    return found


def _kind(text: str, word: str | None) -> str:
    if not text:
        return "space"
    if word is not None:
        plain = _CONTRACTED.sub("", word.lower())
        return "digits" if word[0].isdecimal() else "function word" if plain in FUNCTION_WORDS else "other word"
    if all(letter in _OPERATORS for letter in text):
        return "operator"
    return "punctuation" if not any(letter.isalnum() for letter in text) and text.isprintable() else "other"


def _words_of(pieces: Sequence[str]) -> list[str | None]:
    """Of each token the word or number that holds its first letter."""
    text = "".join(pieces)
    spans = [(match.start(), match.end(), match.group()) for match in _NUMBER_OR_WORD.finditer(text)]
    words: list[str | None] = []
    at = 0
    for start, piece in zip(accumulate(map(len, pieces), initial=0), pieces, strict=False):
        first = start + len(piece) - len(piece.lstrip())
        while at < len(spans) and spans[at][1] <= first:
            at += 1
        inside = at < len(spans) and spans[at][0] <= first < spans[at][1] and bool(piece.strip())
        words.append(spans[at][2] if inside else None)
    return words
