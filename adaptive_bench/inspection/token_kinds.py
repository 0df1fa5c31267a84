"""What kind of token a token is: first, end, digits, an operator, punctuation, a function word, another word.

The kind of a piece of a word or number is the whole one's, so that a tokenizer's cuts do not decide it. Function words
are English; parts of speech of other languages, and finer ones, are spaCy's (`parts_of_speech`).
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Collection, Sequence
from importlib.resources import files
from itertools import accumulate
from typing import Any

from adaptive_bench.errors import EnvironmentProblem

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


def load_pipeline(pipeline: str) -> Any:
    """A spaCy pipeline by its name or its folder.

    Raises:
        EnvironmentProblem: spaCy or the pipeline is not installed.
    """
    if importlib.util.find_spec("spacy") is None:
        raise EnvironmentProblem(
            "Parts of speech are spaCy's, which is not installed. Give pip install 'adaptive-bench[spacy]' and a "
            "pipeline (python -m spacy download en_core_web_sm), or leave out --pos."
        )
    spacy: Any = importlib.import_module("spacy")
    try:
        return spacy.load(pipeline)
    except (OSError, ImportError) as error:
        raise EnvironmentProblem(
            f"--pos names a spaCy pipeline that is installed, or its folder, got {pipeline!r}: {error} Give python -m "
            f"spacy download en_core_web_sm, or leave out --pos."
        ) from error


def parts_of_speech(pieces: Sequence[str], pipeline: str) -> list[str]:
    """The universal part of speech of the word that each token belongs to, as a spaCy pipeline has it (NOUN, ADP ...);
    `first` for the first token, `X` where there is none.

    Args:
        pipeline: Name of an installed pipeline such as `en_core_web_sm`, or its folder.

    Raises:
        EnvironmentProblem: spaCy or the pipeline is not installed, or the pipeline gives no parts of speech.
    """
    load = load_pipeline(pipeline)
    document = load("".join(pieces))
    if not any(word.pos_ for word in document):
        raise EnvironmentProblem(
            f"--pos names a spaCy pipeline that tells parts of speech, got {pipeline!r} with {load.pipe_names}. Name "
            f"one such as en_core_web_sm."
        )
    owner = {place: word.pos_ or "X" for word in document for place in range(word.idx, word.idx + len(word.text))}
    starts = accumulate(map(len, pieces), initial=0)
    first = (start + len(piece) - len(piece.lstrip()) for start, piece in zip(starts, pieces, strict=False))
    return ["first" if place == 0 else owner.get(start, "X") for place, start in enumerate(first)]
