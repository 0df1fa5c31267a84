"""Option values that are lists of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from adaptive_bench.errors import UsageError

Number = TypeVar("Number", int, float)


def numbers_value(text: str, option: str, kind: Callable[[str], Number], rule: str) -> tuple[Number, ...]:
    """`1,8,32` becomes numbers, each once.

    Raises:
        UsageError: A part is no such number; says `option takes rule`.
    """
    try:
        return tuple(dict.fromkeys(kind(part) for part in text.split(",") if part.strip()))
    except ValueError:
        raise UsageError(f"{option} takes {rule}, got {text!r}.") from None
