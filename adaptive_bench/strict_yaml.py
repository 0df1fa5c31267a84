"""Reads YAML files that people write. A key that occurs twice is refused; PyYAML would silently use the last one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from adaptive_bench.errors import EnvironmentProblem, UsageError, one_line

# The error for `[mod, static_depth[trained=true]]`: YAML takes the second bracket for the beginning of a list.
_BRACKETS = "expected ',' or ']', but got '['"


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
    values = parse(text, f"The config file {str(path)!r}")
    if not isinstance(values, dict):
        got = "nothing" if values is None else type(values).__name__
        raise UsageError(
            f"The config file {str(path)!r} must hold keys and values, got {got}. Write them as `key: value`, a line "
            f"for each; `adaptive-bench list keys` shows those of a run."
        )
    return values


def parse(text: str, what: str) -> Any:
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
