"""Option values that are lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from adaptive_bench.errors import UsageError, one_line
from adaptive_bench.validation import LARGEST_COUNT, each_once, parts_of

Number = TypeVar("Number", int, float)
Item = TypeVar("Item")


def numbers_value(
    text: str, option: str, kind: Callable[[str], Number], rule: str, fits: Callable[[Number], bool]
) -> tuple[Number, ...]:
    """`1,8,32` becomes numbers.

    Args:
        fits: Whether the option takes a number.

    Raises:
        UsageError: A part is no such number, is empty or stands there twice, or there is none; says `option takes
            rule`.
    """
    parts = items_value(text, option)
    try:
        numbers = [kind(part) for part in parts]
    except ValueError:
        numbers = []
    if not numbers or not all(map(fits, numbers)):
        raise UsageError(f"{option} takes {rule}, got {one_line(text, 100)!r}.")
    return _checked(lambda: each_once(numbers), text, option)


def is_count(number: int) -> bool:
    """Whether so many rows, steps or documents can be meant."""
    return 1 <= number <= LARGEST_COUNT


def is_share(number: float) -> bool:
    """Whether a saving can be that share of all."""
    return 0 <= number < 1


def items_value(text: str, option: str) -> tuple[str, ...]:
    """`a,b` becomes its items.

    Raises:
        UsageError: One is empty or stands there twice.
    """
    return _checked(lambda: each_once(parts_of(text)), text, option)


def _checked(read: Callable[[], tuple[Item, ...]], text: str, option: str) -> tuple[Item, ...]:
    try:
        return read()
    except ValueError as error:
        raise UsageError(f"{option} is wrong: {error}, got {one_line(text, 100)}.") from None
