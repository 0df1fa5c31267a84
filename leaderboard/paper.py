"""The tables of the GateSkip paper, as it prints them: reference series, nothing that was measured here."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def paper_tables() -> list[dict[str, Any]]:
    """Tables 1-3, 5 and 10-12: number, caption, column groups, columns and rows. Values are the paper's own texts,
    mean ± standard deviation where it gives both; an empty text where it gives nothing.
    """
    tables: list[dict[str, Any]] = json.loads(files(__package__).joinpath("paper.json").read_text(encoding="utf-8"))
    for table in tables:
        for row in table["rows"]:
            row["values_"] = row.pop("values")  # `values` is a method of a dict, which a template would find first
    return tables
