"""Text in few bytes: a number for each word, most of them of one byte, compressed by bzip2.

What a model wrote is new text of few words, in which hardly anything long stands twice. There bzip2 needs a seventh
less than xz, and with words for letters an eighth less again. What a word is only matters for the size: the words of
the vocabulary put one after the other are the text.
"""

from __future__ import annotations

import bz2
import json
import re
from collections import Counter
from typing import Final

MOST_BYTES: Final = 50_000_000  # of words as numbers
MOST_CHARACTERS: Final = 200_000_000
_WORD = re.compile(r" ?\w+|\\n|\W")
_SHORT: Final = 224  # numbers of one byte; the others have two, of which the first is not below this
_PAGES: Final = 256 - _SHORT
_MOST_WORDS: Final = _SHORT + _PAGES * 256
_PLAIN: Final = b"p"
_NUMBERED: Final = b"n"


def shortened(text: str) -> bytes:
    """The text as bytes, of two forms the shorter one; none of an empty text."""
    plain = bz2.compress(_PLAIN + text.encode("utf-8", "surrogateescape"))
    numbered = _numbered(text)
    return min(plain, plain if numbered is None else bz2.compress(numbered), key=len) if text else b""


def lengthened(content: bytes) -> str:
    """The text that `shortened` was given.

    Raises:
        LookupError, OSError, TypeError, ValueError: It was not given one, or a longer one than may be.
    """
    if not content:
        return ""
    unpacker = bz2.BZ2Decompressor()
    found = unpacker.decompress(content, MOST_BYTES + 1)
    if len(found) > MOST_BYTES or not unpacker.eof or unpacker.unused_data:
        raise ValueError(f"a text has at most {MOST_BYTES} bytes, and ends where its stream does")
    form, found = found[:1], found[1:]
    if form == _PLAIN:
        return found.decode("utf-8", "surrogateescape")
    if form != _NUMBERED:
        raise ValueError(f"{form!r} is no form of a text")
    listed, _, numbers = found.partition(b"\n")
    words = [str(word) for word in json.loads(listed)]
    rest = iter(numbers)
    pieces = [words[one if one < _SHORT else one + _PAGES * next(rest)] for one in rest]
    if sum(map(len, pieces)) > MOST_CHARACTERS:
        raise ValueError(f"a text has at most {MOST_CHARACTERS} characters")
    return "".join(pieces)


def _numbered(text: str) -> bytes | None:
    """The vocabulary on a line, and the number of each word in it; `None` where there are too many letters for that."""
    pieces = _WORD.findall(text)
    counts = Counter(pieces)
    letters = Counter({letter: 0 for word in counts for letter in word})
    if len(letters) > _MOST_WORDS:
        return None
    often = [word for word, count in counts.most_common(_MOST_WORDS - len(letters)) if count > 1 or len(word) == 1]
    known = dict.fromkeys((*often, *letters))  # the commonest first; a rare word is spelled
    numbers = {word: _bytes_of(number) for number, word in enumerate(known)}
    spelled = {word: numbers.get(word) or b"".join(map(numbers.__getitem__, word)) for word in counts}
    return b"".join([_NUMBERED, json.dumps(list(known)).encode(), b"\n", *map(spelled.__getitem__, pieces)])


def _bytes_of(number: int) -> bytes:
    if number < _SHORT:
        return bytes([number])
    page, first = divmod(number - _SHORT, _PAGES)
    return bytes([_SHORT + first, page])
