"""Lists that people write, with commas between their items: no item is empty, and none stands twice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")

_COMMA = re.compile(r",(?![^\[]*\])")  # those in the brackets of a method spec belong to the spec


def parts_of(text: str) -> list[str]:
    """The items of a text, without white space around them; none where it holds nothing but commas.

    A comma may end it: `4,` is a list where `4` is a number.

    Raises:
        ValueError: Between two commas, or at the beginning, there is nothing.
    """
    parts = [part.strip() for part in _COMMA.split(text)]
    if not any(parts):
        return []
    if not parts[-1]:
        parts.pop()
    if not all(parts):
        raise ValueError("a list has an item before every comma (leave the other commas out)")
    return parts


def each_once(items: Iterable[Item]) -> tuple[Item, ...]:
    """The items as they are.

    Raises:
        ValueError: One of them stands there twice, or is an empty text.
    """
    found = tuple(items)
    if not all(item.strip() for item in found if isinstance(item, str)):
        raise ValueError("no item of a list is an empty text (leave it out)")
    for item, times in Counter(found).items():
        if times > 1:
            raise ValueError(
                f"every item of a list stands there once (give {str(item)[:100]!r} once, not {times} times)"
            )
    return found
