"""JSON files of a record: read as they were written, or not at all.

A file ends with a digest of what it says (`digest.sealed`). Those of earlier versions do not; they are held to the form
that a reader needs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from adaptive_bench.digest import is_intact, is_sealed
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.evaluation.record import Evaluation
from adaptive_bench.schema import check_schema


class _Status(TypedDict):
    state: Literal["planned", "running", "done", "failed", "partial"]
    reason: str


class _Cost(TypedDict):
    parameters_added: float
    tokens: float
    flops: float


class _Target(TypedDict):
    axis: str
    saving: float
    tokens: float
    priced: dict[str, float]


class _Dial(TypedDict):
    max_saved_tokens: float


class _Calibrated(TypedDict):
    requested: float
    realised: float
    status: str


class _Calibration(TypedDict):
    dials: list[_Calibrated]


class _Data(TypedDict):
    sequences: float
    examples: float
    truncated_examples: float
    tokens: float
    loss_tokens: float
    order_sha256: str


class _Behaviour(TypedDict):
    sha256: str


_FORMS: dict[str, TypeAdapter[Any]] = {
    "status.json": TypeAdapter(_Status),
    "cost.json": TypeAdapter(_Cost),
    "target.json": TypeAdapter(_Target),
    "dial.json": TypeAdapter(_Dial),
    "calibration.json": TypeAdapter(_Calibration),
    "data.json": TypeAdapter(_Data),
    "behaviour.json": TypeAdapter(_Behaviour),
}
_POINT: TypeAdapter[Any] = TypeAdapter(Evaluation)


def read_file(path: Path) -> dict[str, Any] | None:
    """What a file says, or `None` if it is not there, is not what was written, or says what no such file says.

    Raises:
        EnvironmentProblem: A newer version wrote it, or it may not be read.
    """
    content = _content(path)
    return None if content is None else _parsed(path, content)


def look(folder: Path, wanted: Sequence[str]) -> tuple[list[str], dict[str, dict[str, Any]], list[str]]:
    """One pass over a record, for those who look at thousands: each file is read once, and parsed only if wanted.

    Returns:
        All names in the folder, what the wanted files say (as `read_file` has it), and the names of damaged files.

    Raises:
        EnvironmentProblem: As `read_file`.
    """
    names = sorted(os.listdir(folder))  # noqa: PTH208 - a path for each name takes longer than reading it
    said, damaged = {}, []
    for name in names:
        if not name.endswith(".json") or (content := _content(os.path.join(folder, name))) is None:  # noqa: PTH118
            continue
        if name in wanted or not is_sealed(content):
            values = _parsed(folder / name, content)
            if values is None:
                damaged.append(name)
            else:
                said[name] = values
        elif not is_intact(content):
            damaged.append(name)
    return names, said, damaged


def _content(path: Path | str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 - as above
            return stream.readall()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise EnvironmentProblem(
            f"A record must be readable, but {str(path)!r} is not: {error.strerror or error}. Change its permissions, "
            "or choose another --out."
        ) from error


def _parsed(path: Path, content: bytes) -> dict[str, Any] | None:
    if is_sealed(content) and not is_intact(content):
        return None
    try:
        values = json.loads(content, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    check_schema(values, path)
    if is_sealed(content):
        values.pop("content_sha256")
        return values
    return values if _has_form(path.name, values) else None


def _has_form(name: str, values: dict[str, Any]) -> bool:
    form = _FORMS.get(name, _POINT if name[:1].isdigit() else None)
    if form is None:
        return True
    try:
        form.validate_python(values)
    except (ValidationError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
