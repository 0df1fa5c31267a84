"""Values by their kind in streams of bytes: numbers in binary, each byte beside those of the other values.

They are numbers if that gives them back as they were written; which kind compresses better is tried.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

TEXT: Final = "text"
DOUBLE: Final = "double"
KINDS: Final = (TEXT, DOUBLE)
MOST_VALUES: Final = 4_000_000  # of a part: each takes some 200 bytes of memory while it is read
_TYPE: Final = "<f8"
_BYTES: Final = 8


def written(values: Sequence[str]) -> tuple[str, bytes]:
    """The kind of some values, and their bytes in its stream."""
    found = {TEXT: "".join(f"{value}\n" for value in values).encode("utf-8", "surrogateescape")}
    if values and all(value[0] in "-0123456789" for value in values) and (numbers := _numbers(values)) is not None:
        found[DOUBLE] = numbers
    kind = min(found, key=lambda kind: len(zlib.compress(found[kind])))
    return kind, found[kind]


def _numbers(values: Sequence[str]) -> bytes | None:
    """Their bytes as numbers, if those give back what was written."""
    try:
        numbers = np.array([float(value) for value in values]).astype(_TYPE)
    except ValueError:
        return None
    content = np.ascontiguousarray(numbers.view(np.uint8).reshape(len(values), _BYTES).T).tobytes()
    return content if Stream(DOUBLE, content).take(len(values)) == list(values) else None


class Stream:
    """The values of a kind, to be taken in the order in which they were written.

    Raises:
        ValueError: They are more than a part may have, or not whole.
    """

    def __init__(self, kind: str, content: bytes) -> None:
        self.kind = kind
        self._content = content
        self._at = 0
        self._lines: Iterator[str] = iter(())
        if kind == TEXT:
            self._left = content.count(b"\n")
            whole = not content or content.endswith(b"\n")
        else:
            self._left, rest = divmod(len(content), _BYTES)
            whole = rest == 0
        if not whole or self._left > MOST_VALUES:
            raise ValueError(f"values of kind {kind} are whole, and at most {MOST_VALUES}")
        if kind == TEXT:
            self._lines = iter(content.decode("utf-8", "surrogateescape").split("\n"))

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
        piece = np.frombuffer(self._content, np.uint8, count * _BYTES, self._at).reshape(_BYTES, count)
        self._at += count * _BYTES
        return [repr(value) for value in np.ascontiguousarray(piece.T).view(_TYPE).reshape(count).tolist()]

    def check_end(self) -> None:
        """Refuse what nobody asked for.

        Raises:
            ValueError: There is some.
        """
        if self._left:
            raise ValueError(f"{self._left} values of kind {self.kind} belong to no file")
