"""Reads YAML files that people write: each key once, few aliases, a sane size. Anything else is said with its line."""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from adaptive_bench.errors import EnvironmentProblem, UsageError, one_line

_MOST_BYTES = 1_000_000
_MOST_ALIASES = 16  # each may double what it stands for: a few more and a short file is larger than memory
_MOST_LEVELS = 50


class _Refused(yaml.YAMLError):
    """The file is YAML, but not what a config file may be."""


class _StrictLoader(yaml.SafeLoader):
    aliases = 0
    level = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            self.aliases += 1
            if self.aliases > _MOST_ALIASES:
                raise _Refused(f"it may use {_MOST_ALIASES} aliases (`*name`), found more in {self._line()}")
        self.level += 1
        if self.level > _MOST_LEVELS:
            raise _Refused(f"it may nest {_MOST_LEVELS} levels deep, found more in {self._line()}")
        node = super().compose_node(parent, index)
        self.level -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in seen if isinstance(key, yaml.ScalarNode) else True:
                line = key.start_mark.line + 1
                raise _Refused(
                    f"every key is a plain word and stands once, got {one_line(str(key.value), 60)!r} in line {line}"
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def _line(self) -> str:
        return f"line {self.peek_event().start_mark.line + 1}"


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
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentProblem(
            f"The config file {str(path)!r} cannot be read: {one_line(str(error))}. Check the path."
        ) from error
    values = parse(text, f"The config file {str(path)!r}")
    if not isinstance(values, dict):
        raise UsageError(f"The config file {str(path)!r} must hold keys and values, got {type(values).__name__}.")
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
        raise UsageError(f"{what} is not accepted: {error}. Write the values out.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} is not valid YAML: {one_line(str(error), 300)}.") from error
