"""Reads what people write: YAML files, in which a key stands once (PyYAML would silently use the last one), and
comma-separated lists, in which no item is empty or occurs twice; and says what is wrong in their terms, not Python's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import yaml

from adaptive_bench.errors import EnvironmentProblem, UsageError, one_line

LARGEST_COUNT = 10_000_000  # of documents, tokens or rows; a larger number is a typing error and would never end
LARGEST_RATE = 100.0  # of learning or weight decay; larger than any sensible value
LARGEST_SEED = 2**32 - 1  # NumPy takes no larger seed
MOST_SEEDS = 1000
MOST_THREADS = 1024  # of a process; PyTorch would start any number
MOST_MINUTES = 60 * 24 * 366  # a year; a longer time is a typing error
Quantization = Literal["none", "int8", "int4", "nf4"]  # forms in which layers' weights are stored while evaluated
QUANTIZED: tuple[Quantization, ...] = get_args(Quantization)[1:]
NAME = re.compile(r"[A-Za-z0-9_\-]+")  # registered names: they must fit into method specs and paths

Item = TypeVar("Item")
_COMMA = re.compile(r",(?![^\[]*\])")  # commas in the brackets of a method spec belong to the spec
# The error for `[mod, static_depth[trained=true]]`: YAML takes the second bracket for the beginning of a list.
_BRACKETS = "expected ',' or ']', but got '['"


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


class _StrictLoader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key, times in Counter(str(key.value) for key, _ in node.value if key.value != "<<").items():
            if times > 1:
                problem = f"every key stands once, got {one_line(key, 60)!r} {times} times"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


def read_mapping(path: Path) -> dict[str, Any]:
    """Read the keys and values of a YAML file.

    Raises:
        UsageError: The file is not YAML, does not hold keys and values, or has a key twice.
        EnvironmentProblem: The file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentProblem(
            f"The config file {str(path)!r} cannot be read: {one_line(str(error))}. Check the path; it is text in "
            f"UTF-8."
        ) from error
    values = parse_yaml(text, f"The config file {str(path)!r}")
    if not isinstance(values, dict):
        got = "nothing" if values is None else type(values).__name__
        raise UsageError(
            f"The config file {str(path)!r} must hold keys and values, got {got}. Write them as `key: value`, a line "
            f"for each; `adaptive-bench list keys` shows those of a run."
        )
    return values


def parse_yaml(text: str, what: str) -> Any:
    """Parse a YAML text.

    Args:
        what: Subject of the error message: what the text is.

    Raises:
        UsageError: The text is not YAML, or has a key twice.
    """
    try:
        return yaml.load(text, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark, str(error.problem)
        where = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        step = "Correct it there."
        if problem == _BRACKETS:
            step = "In a list quote what has brackets of its own: ['static_depth[trained=true]', mod]."
        raise UsageError(f"{what} is not valid YAML: {one_line(problem, 300)}{where}. {step}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} is not valid YAML: {one_line(str(error), 300)}. Correct it.") from error
