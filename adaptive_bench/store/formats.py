"""Writes rows as CSV, JSON and Parquet for other programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def columns(rows: Rows) -> dict[str, list[Any]]:
    """Return the values of all rows by key; `None` if a row lacks the key."""
    names: dict[str, None] = {}
    for row in rows:
        if not row.keys() <= names.keys():  # nearly all of thousands of rows have the keys of the first
            names |= dict.fromkeys(row)
    return {name: [row.get(name) for row in rows] for name in names}


def as_csv(rows: Rows) -> str:
    """Return CSV: a header and a line for each row; `None` becomes an empty cell."""
    found = columns(rows)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(found)
    writer.writerows(zip(*found.values(), strict=True))
    return text.getvalue()


def as_json(rows: Rows) -> str:
    """Return a JSON list of objects that all have the same keys."""
    found = columns(rows)
    lines = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
    return json.dumps(lines, ensure_ascii=False) + "\n"


def as_parquet(rows: Rows) -> bytes:
    """Return a Parquet file. It is made without pandas, whose import takes longer than building a board."""
    import pyarrow
    from pyarrow import parquet

    written = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(columns(rows)), written)
    return bytes(written.getvalue())
