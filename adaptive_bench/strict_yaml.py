"""Reads YAML files that people write: each key once, few aliases, a sane size, and no word that YAML 1.1 and 1.2 read
differently. Anything else is said with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from adaptive_bench.errors import EnvironmentProblem, UsageError, one_line

_MOST_BYTES = 1_000_000
_MOST_ALIASES = 16  # each may double what it stands for: a few more and a short file is larger than memory
_MOST_LEVELS = 50

# What means the same to every reader of YAML, by what PyYAML takes it for. It reads YAML 1.1, to which `010` is 8,
# `1:30` is 90, `no` is false and a day is no text; in YAML 1.2 they are 10 and three texts. `100_000` is what it looks
# like.
_SAME = {
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)|0x[0-9a-fA-F]+"),
    "float": re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
    "timestamp": re.compile(r"(?!)"),
}
_INSTEAD = {
    "bool": "true or false, or ",
    "int": "a number in plain digits, or ",
    "float": "a number in plain digits, or ",
}
_TAG = "tag:yaml.org,2002:"
# `[mod, static_depth[trained=true]]`: YAML takes the second bracket for a list that begins behind a word.
_BRACKETS = "expected ',' or ']', but got '['"


class _Refused(yaml.YAMLError):
    """The file is YAML, but not what a config file may be."""


class _StrictLoader(yaml.SafeLoader):
    aliases = 0
    level = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            self.aliases += 1
            if self.aliases > _MOST_ALIASES:
                raise _Refused(
                    f"it may use {_MOST_ALIASES} aliases (`*name`), found more in {self._line()}; write the values out"
                )
        self.level += 1
        if self.level > _MOST_LEVELS:
            raise _Refused(
                f"it may nest {_MOST_LEVELS} levels deep, found more in {self._line()}; write the values out"
            )
        node = super().compose_node(parent, index)
        self.level -= 1
        return node

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        is_plain, line = self.peek_event().implicit[0], self._line()
        node = super().compose_scalar_node(anchor)
        kind = node.tag.removeprefix(_TAG)
        if is_plain and kind in _SAME and not _SAME[kind].fullmatch(node.value):
            text = one_line(node.value, 60)
            raise _Refused(
                f"readers of YAML take {text} in {line} for different things; write {_INSTEAD.get(kind, '')}"
                f"'{text}' in quotes where it is a text"
            )
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key for key, _ in node.value if key.tag != f"{_TAG}merge"]
        odd = next((key for key in keys if not isinstance(key, yaml.ScalarNode)), None) or key_again(keys)
        if odd is not None:
            line = odd.start_mark.line + 1
            raise _Refused(
                f"every key is a plain word and stands once, got {one_line(str(odd.value), 60)!r} in line {line}; "
                f"leave one out"
            )
        return super().construct_mapping(node, deep)

    def _line(self) -> str:
        return f"line {self.peek_event().start_mark.line + 1}"


def key_again(keys: Iterable[yaml.Node]) -> yaml.Node | None:
    """The first of some keys of a mapping that stood there before."""
    seen: set[str] = set()
    for key in keys:
        if str(key.value) in seen:
            return key
        seen.add(str(key.value))
    return None


def read_mapping(path: Path) -> dict[str, Any]:
    """Keys and values of a YAML file.

    Raises:
        UsageError: Not YAML, not keys and values, a key twice, too many aliases.
        EnvironmentProblem: The file cannot be read.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(
                f"A config file has at most {_MOST_BYTES:,} bytes, got {path.stat().st_size:,} in {str(path)!r}. "
                "Name another file."
            )
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise EnvironmentProblem(
            f"A config file is UTF-8, but {str(path)!r} cannot be read: {one_line(str(error))}. Save it as UTF-8."
        ) from error
    except OSError as error:
        raise EnvironmentProblem(
            f"The config file {str(path)!r} cannot be read: {one_line(str(error))}. Check the path."
        ) from error
    values = parse(text, f"The config file {str(path)!r}")
    if not isinstance(values, dict):
        got = "nothing" if values is None else type(values).__name__
        raise UsageError(
            f"The config file {str(path)!r} must hold keys and values, got {got}. Write them as `key: value`, a line "
            f"for each; `adaptive-bench list keys` shows those of a run."
        )
    return values


def parse(text: str, what: str) -> Any:
    """The value a text stands for in YAML.

    Args:
        what: Subject of the sentence that refuses it.

    Raises:
        UsageError: Not YAML, a key twice, too many aliases.
    """
    return deepcopy(_value(text, what))


@lru_cache(maxsize=4)  # a command asks for a run's config many times, and one of thousands of seeds takes long to parse
def _value(text: str, what: str) -> Any:
    try:
        return yaml.load(text, _StrictLoader)
    except _Refused as error:
        raise UsageError(f"{what} is not accepted: {error}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} is not valid YAML: {_why(error)}") from error


def _why(error: Exception) -> str:
    """What a parser found, where, and what to do about it."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    where = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
    instead = "Correct it there." if mark is not None else "Correct it."
    if problem == _BRACKETS:
        instead = "In a list quote what has brackets of its own: ['static_depth[trained=true]', mod]."
    return f"{one_line(problem, 300)}{where}. {instead}"
