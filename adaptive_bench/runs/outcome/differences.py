"""Two tables of the same run, compared row by row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

_ROUNDING = 1e-9  # another machine sums in another order
_PLACE = ("method", "semantics", "task", "metric", "axis", "phase", "level", "timing")
_LATER = ("bytes",)  # axes that tables of earlier versions have no rows of
_Row = Mapping[str, Any]


def differences(said: Sequence[_Row], now: Sequence[_Row]) -> list[str]:
    """Rows that are not the same in both tables, in words; numbers count as equal up to a relative 1e-9.

    Args:
        said: A table as it was written, in the plain values of its file. Columns and later axes that it lacks are not
            compared.
        now: The table that the records give.
    """
    claimed, found = ({tuple(str(row.get(key)) for key in _PLACE): row for row in table} for table in (said, now))
    there = {row["axis"] for row in said}
    found = {place: row for place, row in found.items() if row["axis"] not in _LATER or row["axis"] in there}
    columns = {key for row in said for key in row}  # a table of an earlier version has fewer
    told = [f"{_named(place)}: not in the records" for place in claimed.keys() - found.keys()]
    told += [f"{_named(place)}: not in the table" for place in found.keys() - claimed.keys()]
    for place, row in found.items():
        if (other := claimed.get(place)) is not None:
            wrong = [key for key in columns if not _same(row.get(key), other.get(key))]
            told += [f"{_named(place)}: {key} {other.get(key)}, by the records {row.get(key)}" for key in sorted(wrong)]
    return told


def _named(place: tuple[str, ...]) -> str:
    return ", ".join(part for part in place if part != "None")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
    return bool(one == other)
