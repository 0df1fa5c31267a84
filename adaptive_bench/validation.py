"""What is wrong with a value, in the words of a person who writes YAML or a command line, not Python; and lists that
people write, with commas between their items: no item is empty, and none stands twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, get_args

from adaptive_bench.errors import UsageError, one_line

LARGEST_COUNT = 10_000_000  # of documents, tokens, rows: more was mistyped, and would never end
LARGEST_RATE = 100.0  # of learning, of decay: more than any optimizer is given
LARGEST_SEED = 2**32 - 1  # NumPy takes no larger one
MOST_SEEDS = 1000
MOST_THREADS = 1024  # of a process: PyTorch starts as many as it is told
MOST_MINUTES = 60 * 24 * 366  # a year: what lasts longer was mistyped
Quantization = Literal["none", "int8", "int4", "nf4"]  # forms in which layers' weights are stored while evaluated
QUANTIZED: tuple[Quantization, ...] = get_args(Quantization)[1:]
NAME = re.compile(r"[A-Za-z0-9_\-]+")  # of what is registered: a method spec can say it, and a path have it

DEVICE_RULE = "A device is auto, cpu, cuda or cuda:<number>"

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


_RULES = {
    "bool": "true or false is needed",
    "dict": "keys with values are needed, such as `{key: value}`",
    "float": "a number is needed",
    "int": "a whole number is needed",
    "list": "a list is needed, such as `[a, b]`",
    "model": "keys with values are needed, such as `{key: value}`",
    "string": "text is needed",
    "tuple": "a list is needed, such as `[a, b]`",
}
_SIZES = {"too_short": ("min_length", "at least"), "too_long": ("max_length", "at most")}


def rule_of(problem: Mapping[str, Any]) -> str:
    """The rule that a value breaks.

    Args:
        problem: One of those of pydantic's `ValidationError.errors()`.
    """
    kind, limits = str(problem["type"]), problem.get("ctx", {})
    if kind in _SIZES:
        name, bound = _SIZES[kind]
        items = f"{limits[name]} item{'s' if limits[name] != 1 else ''}"
        return f"a list of {bound} {items} is needed"
    about, _, what = kind.partition("_")
    if what in ("type", "parsing", "from_float", "attributes_type") and about in _RULES:
        return _RULES[about]
    return without_prefix(str(problem["msg"]))


def without_prefix(said: str) -> str:
    """What pydantic says of a value, without its word for that it is one."""
    return said.removeprefix("Value error, ").removeprefix("Input ")


def check_device(name: str) -> None:
    """Refuse what names no device; whether it is there is `find_device`'s question.

    Raises:
        UsageError: With the rule.
    """
    if not re.fullmatch(r"auto|cpu(:0)?|cuda(:\d+)?", name):
        raise UsageError(f"{DEVICE_RULE}, got {one_line(name, 60)!r}. Set --device, or device= in Python.")
