"""Says what is wrong with a value in terms of YAML or the command line, not of Python; and reads comma-separated lists,
in which no item may be empty or occur twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, get_args

from adaptive_bench.errors import UsageError, one_line

LARGEST_COUNT = 10_000_000  # of documents, tokens or rows; a larger number is a typing error and would never end
LARGEST_RATE = 100.0  # of learning or weight decay; larger than any sensible value
LARGEST_SEED = 2**32 - 1  # NumPy takes no larger seed
MOST_SEEDS = 1000
MOST_THREADS = 1024  # of a process; PyTorch would start any number
MOST_MINUTES = 60 * 24 * 366  # a year; a longer time is a typing error
Quantization = Literal["none", "int8", "int4", "nf4"]  # forms in which layers' weights are stored while evaluated
QUANTIZED: tuple[Quantization, ...] = get_args(Quantization)[1:]
NAME = re.compile(r"[A-Za-z0-9_\-]+")  # registered names: they must fit into method specs and paths

DEVICE_RULE = "A device is auto, cpu, cuda or cuda:<number>"

Item = TypeVar("Item")
_COMMA = re.compile(r",(?![^\[]*\])")  # commas in the brackets of a method spec belong to the spec


def parts_of(text: str) -> list[str]:
    """Split a text at its commas into items without surrounding white space; a text of commas alone has no items.

    The text may end with a comma: `4,` is a list, while `4` is a number.

    Raises:
        ValueError: There is nothing between two commas or before the first.
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
    """Return the items unchanged, after checking them.

    Raises:
        ValueError: An item occurs twice, or is an empty text.
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


def rule_of(problem: Mapping[str, Any]) -> str:
    """Return the rule that a value breaks, as pydantic says it, in words for YAML: a tuple is a list there.

    Args:
        problem: An item of pydantic's `ValidationError.errors()`.
    """
    said = str(problem["msg"]).replace("valid tuple", "list").replace("Tuple should", "should")
    return said.removeprefix("Value error, ").removeprefix("Input ").replace(" after validation", "")


def check_device(name: str) -> None:
    """Refuse a text that names no device. Whether the device exists is checked by `find_device`.

    Raises:
        UsageError: The text does not have the form of a device; the message gives the rule.
    """
    if not re.fullmatch(r"auto|cpu(:0)?|cuda(:\d+)?", name):
        raise UsageError(f"{DEVICE_RULE}, got {one_line(name, 60)!r}. Set --device, or device= in Python.")
