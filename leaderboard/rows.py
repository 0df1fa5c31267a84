"""Rows as they are let in: with values of their kinds, and texts that are a line each, without markup."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from adaptive_bench.errors import AdaptiveBenchError, message_of
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import runs
from adaptive_bench.validation import rule_of

from .plain import plain
from .row import OF_A_TABLE, Row

_LONGEST_TEXT = 1000
_LONGEST_REASON = 2000
_MARKUP = re.compile(r'[<>`|\\{}"$]|\]\(|//|www\.')  # of which no name is made


class Rejected(ValueError):
    """An entry, a table or a row cannot be read; the message says why, in a line of plain text."""


def read_json(path: Path) -> Any:
    """A JSON file.

    Raises:
        Rejected: It cannot be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Rejected(f"{path.name} is not readable JSON ({type(error).__name__})") from error


def read_of_run(path: Path) -> Any:
    """A JSON file that a run wrote.

    Raises:
        Rejected: It cannot be read; with the command that writes it again.
    """
    try:
        return runs.read_json(path)
    except AdaptiveBenchError as error:
        # It names paths, the command among them: longer than what a table says of itself may be.
        raise Rejected(plain(message_of(error), _LONGEST_REASON).removesuffix(".")) from error


def spec_of(row: Mapping[str, Any]) -> str:
    """The method of a row with its semantics, as `methods.json` names it."""
    method, semantics = str(row["method"]), row.get("semantics", "bench")
    return method if semantics == "bench" or method.endswith(f"@{semantics}") else f"{method}@{semantics}"


def first_metrics(rows: Iterable[Row]) -> dict[str, str]:
    """By task the metric it is judged by: the first of its rows."""
    first: dict[str, str] = {}
    for row in rows:
        first.setdefault(row.task, row.metric)
    return first


def checked(value: object) -> dict[str, Any]:
    """A row of a table with the columns that a board knows.

    Raises:
        Rejected: A value is missing or of another kind, a number is not finite, or a text is no line of plain text.
    """
    try:
        row = _form().model_validate(value).model_dump()
        MethodSpec.parse(row["method"])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"{plain('.'.join(map(str, first['loc'])), 60)}: " if first["loc"] else ""
        raise Rejected(f"{where}{rule_of(first)}, got {plain(repr(first['input']), 40)}") from error
    except AdaptiveBenchError as error:
        raise Rejected(plain(message_of(error), 200)) from error
    for name, text in row.items():
        if isinstance(text, str) and (plain(text, _LONGEST_TEXT) != text or _MARKUP.search(text)):
            raise Rejected(
                f"{name} is a line of at most {_LONGEST_TEXT} characters without markup, got {plain(text, 40)!r}"
            )
    return row


@cache
def _form() -> type[BaseModel]:
    """The columns of a table; others are left out."""
    types = get_type_hints(Row)
    defaults = {name: getattr(Row.__dataclass_fields__[name], "default", ...) for name in OF_A_TABLE}
    known: dict[str, Any] = {
        name: (types[name], ... if name in _NEEDED else default) for name, default in defaults.items()
    }
    return create_model("Row", __config__=ConfigDict(strict=True, allow_inf_nan=False), **known)


_NEEDED = ("method", "task", "metric", "axis", "level", "score")
