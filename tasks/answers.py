"""Reads the answer out of what a model wrote, in the same way for every generative task.

`strict` takes what stands after the first `####`. `flexible` takes the last number, or the last option letter that
stands as an answer, wherever it is. Both ignore what does not change the answer: currency signs, separators and
trailing zeros of a number; brackets, stars and case of a letter. lm-eval calls the filters with the responses of all
documents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

INVALID = "[invalid]"  # what lm-eval's own filters return if there is no answer
_MARK = "####"
# A minus belongs to the number unless it follows a word or a bracket, from which the number could be subtracted.
_NUMBER = re.compile(r"((?<![\w)])[-−])?\$?((?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d+)?|(?<![\w.])\.\d+)(?!\d)")
# A calculation up to its last equals sign ("20 - 5 ="); the result comes after it.
_WORKING = re.compile(r"\d[^=]*?(?<=[\d\s)%])[-−+*/×÷x]\s*[($]*\.?\d.*=")
_AFTER_MARK = re.compile(r"[\s*_(\[\"']*([A-Za-z])(?![A-Za-z])")
# "A" before a word in lower case is an article, unless the word says that it is the answer.
_LETTER = r"(?:[B-Z]|A(?!\s+(?!is\b|was\b|because\b|since\b)[a-z]))"
_ALONE = re.compile(rf"(?<![\w'])({_LETTER})(?![\w'])")

Filter = Callable[[Iterable[Sequence[str]], Sequence[Mapping[str, Any]]], list[list[str]]]


def number_after_mark(text: str) -> str:
    """The first number in the line after the mark, or the result of a calculation there, in its plainest form;
    `INVALID` if there is none.
    """
    line = _marked_line(text)
    working = _WORKING.search(line)
    found = (_NUMBER.search(line, working.end()) if working else None) or _NUMBER.search(line)
    return _plain(found) if found else INVALID


def last_number(text: str) -> str:
    """The last number anywhere in the text, in its plainest form."""
    found = list(_NUMBER.finditer(text))
    return _plain(found[-1]) if found else INVALID


def letter_after_mark(text: str, letters: str) -> str:
    """The letter that the line after the mark begins with, if it is one of `letters`."""
    found = _AFTER_MARK.match(_marked_line(text))
    return found[1].upper() if found and found[1].upper() in letters else INVALID


def last_letter(text: str, letters: str) -> str:
    """The last of `letters` that stands alone and is not the article "A"."""
    found = [match[1] for match in _ALONE.finditer(text) if match[1] in letters]
    return found[-1] if found else INVALID


def unparsable(references: Sequence[str], predictions: Sequence[str]) -> float:
    """lm-eval metric: 1 for a document from whose response no answer could be read."""
    return float(predictions[0] == INVALID)


def _of_numbers(read: Callable[[str], str]) -> Filter:
    return lambda responses, _: [[read(text) for text in texts] for texts in responses]


def _of_letters(read: Callable[[str, str], str]) -> Filter:
    """A filter for documents that list their options in the field `letters`."""

    def apply(responses: Iterable[Sequence[str]], documents: Sequence[Mapping[str, Any]]) -> list[list[str]]:
        pairs = zip(responses, documents, strict=True)
        return [[read(text, document["letters"]) for text in texts] for texts, document in pairs]

    return apply


strict_numbers = _of_numbers(number_after_mark)
flexible_numbers = _of_numbers(last_number)
strict_letters = _of_letters(letter_after_mark)
flexible_letters = _of_letters(last_letter)


def _marked_line(text: str) -> str:
    """The rest of the first mark's line, or the first line after it that is not blank."""
    _, mark, after = text.partition(_MARK)
    return next((line for line in after.splitlines() if line.strip()), "") if mark else ""


def _plain(found: re.Match[str]) -> str:
    value = Decimal(found[2].replace(",", ""))
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return ("-" if found[1] and value else "") + text
