"""What is wrong with a value, in the words of a person who writes YAML or a command line, not Python."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from numbers import Integral
from pathlib import Path
from types import FunctionType
from typing import Any, get_args

from adaptive_bench.errors import UsageError, is_printable, one_line

LARGEST_COUNT = 10_000_000  # of documents, tokens, rows: more was mistyped, and would never end
LARGEST_RATE = 100.0  # of learning, of decay: more than any optimizer is given
LARGEST_SEED = 2**32 - 1  # NumPy takes no larger one
MOST_SEEDS = 1000
MOST_THREADS = 1024  # of a process: PyTorch starts as many as it is told
MOST_MINUTES = 60 * 24 * 366  # a year: what lasts longer was mistyped
_LONGEST_NAME, _LONGEST_PATH = 255, 4096  # bytes that file systems take
_LONGEST_DESCRIPTION = 1000  # characters of what a plugin says of itself in a table
NAME = re.compile(r"[A-Za-z0-9_\-]+")  # of what is registered: a method spec can say it, and a path have it
DESCRIPTION = f"one line of printable text of at most {_LONGEST_DESCRIPTION:,} characters"

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


def is_description(value: object) -> bool:
    """Whether a plugin may say this of itself: see `DESCRIPTION`."""
    return isinstance(value, str) and len(value) <= _LONGEST_DESCRIPTION and is_printable(value) and is_utf8(value)


def is_utf8(text: str) -> bool:
    """Whether a text can be written to a file; half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refuse_truth_for_number(value: Any, annotation: Any) -> None:
    """Refuse `true` and `false` where a number or a text is meant: Python counts them as 1 and 0.

    Args:
        value: Of a key, before anything is made of it.
        annotation: Type of the key; parts with keys of their own are left to these.

    Raises:
        ValueError: Truth in it is none that the key may have.
    """
    kinds = _kinds(annotation)
    if bool in kinds or Any in kinds or any(hasattr(kind, "model_fields") for kind in kinds):
        return
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else (value,)
    if any(isinstance(part, bool) for part in parts):
        needed = next((_RULES[kind.__name__] for kind in (int, float) if kind in kinds), "no truth value is taken")
        raise ValueError(needed)


def as_path(given: Any, what: str, step: str = "Name one; '.' is the current folder.") -> Path:
    """A path as a call in Python was given it.

    Args:
        what: Begins the sentence that refuses it: `A model is saved in a folder`.
        step: What to give instead.

    Raises:
        UsageError: No file system has such a path, or it is empty: then it would be the current folder, unsaid.
    """
    text = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if (
        not isinstance(text, str)
        or not text.strip()
        or not is_printable(text)
        or len(os.fsencode(text)) >= _LONGEST_PATH
        or any(len(os.fsencode(part)) > _LONGEST_NAME for part in Path(text).parts)
    ):
        raise UsageError(
            f"{what}, a text of printable characters with at most {_LONGEST_NAME} bytes a name, got "
            f"{one_line(repr(given), 60)}. {step}"
        )
    return Path(text)


def can_take(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments by position; of one that hides what it takes, it can."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def called_as(name: str, function: object) -> str:
    """What stands behind `def`, types left out; of what is no function of Python what it is."""
    function = function.__func__ if isinstance(function, classmethod | staticmethod) else function
    if not isinstance(function, FunctionType):
        return one_line(repr(function)[:200], 60)
    parameters = inspect.signature(function).parameters.values()
    return f"{name}({', '.join(str(one.replace(annotation=inspect.Parameter.empty)) for one in parameters)})"


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    """Whether a value is a whole number of at least 1."""
    return is_whole(value) and int(value) >= 1


def check_rates(*rates: float) -> tuple[float, ...]:
    """Learning rates as they are.

    Raises:
        UsageError: One is no number, below 0, or more than any optimizer is given.
    """
    for rate in rates:
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= LARGEST_RATE:
            raise UsageError(f"A learning rate is a number from 0 to {LARGEST_RATE:g}, got {rate!r}. Try 1e-3.")
    return rates


def check_seed(seed: Any) -> None:
    """Refuse what is no seed.

    Raises:
        UsageError: It is no whole number, or beyond those that every library takes.
    """
    if not is_whole(seed) or not 0 <= int(seed) <= LARGEST_SEED:
        raise UsageError(f"A seed is a whole number from 0 to {LARGEST_SEED}, got {seed!r}. Leave it out for 0.")


def _kinds(annotation: Any) -> set[Any]:
    """All types that a type is made of."""
    inner = get_args(annotation)
    return {annotation}.union(*map(_kinds, inner)) if inner else {annotation}
