"""Rows as files for other programs: one column for each key of any row, in the order in which keys come."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def columns(rows: Rows) -> dict[str, list[Any]]:
    """The values of every row by key; `None` where a row has none."""
    names: dict[str, None] = {}
    for row in rows:
        if not row.keys() <= names.keys():  # of thousands of rows nearly all have the keys of the first
            names |= dict.fromkeys(row)
    return {name: [row.get(name) for row in rows] for name in names}


def as_csv(rows: Rows) -> str:
    """A header and a line for each row; nothing where a value is `None`."""
    found = columns(rows)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(found)
    writer.writerows(zip(*found.values(), strict=True))
    return text.getvalue()


def as_json(rows: Rows) -> str:
    """A list of objects with the same keys each."""
    found = columns(rows)
    lines = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
    return json.dumps(lines, ensure_ascii=False) + "\n"


def as_parquet(rows: Rows) -> bytes:
    """A Parquet file. It is made without pandas, which takes longer to import than a board to build."""
    import pyarrow
    from pyarrow import parquet

    written = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(columns(rows)), written)
    return bytes(written.getvalue())
