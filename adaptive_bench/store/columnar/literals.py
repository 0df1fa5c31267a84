"""Values by their kind in streams of bytes: numbers in binary, each byte of a kind beside those of the other values.

A kind is right for values that it gives back as they were written; which of the right ones compresses best is tried.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from .words import lengthened

TEXT: Final = "text"
# Kind -> type in the stream, and how a number is written. Weights and losses are of 32 bits, shares of 64; counts of
# operations are whole, with a point (`whole`) or without.
_NUMBERS: Final[Mapping[str, tuple[str, Callable[[float], str]]]] = {
    "single": ("<f4", repr),
    "double": ("<f8", repr),
    "whole": ("<i8", lambda value: repr(float(value))),
    "count": ("<i8", lambda value: str(int(value))),
}
KINDS: Final = (TEXT, *_NUMBERS)


def written(values: Sequence[str]) -> tuple[str, bytes]:
    """The kind of some values, and their bytes in its stream; of text as it is before `words.shortened`."""
    found = {TEXT: "".join(f"{value}\n" for value in values).encode("utf-8", "surrogateescape")}
    if values and all(value[0] in "-0123456789" for value in values):
        for kind in _NUMBERS:
            if (content := _numbers(kind, values)) is not None:
                found[kind] = content
    kind = min(found, key=lambda kind: len(zlib.compress(found[kind])))
    return kind, found[kind]


def _numbers(kind: str, values: Sequence[str]) -> bytes | None:
    """Their bytes as one kind of number, if it gives back what was written."""
    type_, _ = _NUMBERS[kind]
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = np.array([float(value) for value in values]).astype(type_)
    except (ValueError, OverflowError):
        return None
    content = np.ascontiguousarray(numbers.view(np.uint8).reshape(len(values), -1).T).tobytes()
    return content if Stream(kind, content).take(len(values)) == list(values) else None


class Stream:
    """The values of a kind, to be taken in the order in which they were written."""

    def __init__(self, kind: str, content: bytes) -> None:
        self.kind = kind
        self._content = content
        self._at = 0
        self._lines: Iterator[str] = iter(())
        if kind == TEXT:
            lines = lengthened(content).split("\n")
            self._left = len(lines) - 1  # the last one ends with its line too
            self._lines = iter(lines)
        else:
            self._left = len(content) // np.dtype(_NUMBERS[kind][0]).itemsize

    def take(self, count: int) -> list[str]:
        """The next values.

        Raises:
            ValueError: There are not so many.
        """
        if count > self._left:
            raise ValueError(f"{count} values of kind {self.kind} are asked for, there are {self._left}")
        self._left -= count
        if self.kind == TEXT:
            return [next(self._lines) for _ in range(count)]
        type_, text = _NUMBERS[self.kind]
        size = np.dtype(type_).itemsize
        piece = np.frombuffer(self._content, np.uint8, count * size, self._at).reshape(size, count)
        self._at += count * size
        numbers = np.ascontiguousarray(piece.T).view(type_).reshape(count)
        return [text(value) for value in numbers.tolist()]

    def check_end(self) -> None:
        """Refuse what nobody asked for.

        Raises:
            ValueError: There is some.
        """
        rest = next(self._lines, "") if self.kind == TEXT and not self._left else ""
        whole = self.kind == TEXT or self._at == len(self._content)
        if self._left or rest or not whole:
            raise ValueError(f"values of kind {self.kind} stand there that belong to no file")
