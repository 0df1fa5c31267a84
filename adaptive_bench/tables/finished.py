"""Joins the rows of several finished runs into one table."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from adaptive_bench.source import TABLES
from adaptive_bench.store.results import ending_of
from adaptive_bench.tables.comparable import conditions_of
from adaptive_bench.tables.made_with import both

Row = dict[str, Any]
_MEANING = ("method", "semantics", "task", "metric", "axis", "level", "timing", "projected_shape")
QUICK_NOTE = "Quick: not to be quoted"  # how the warning of a quick run begins
# Runs dispute over the first 3 parts of a row's meaning (conditions, method, semantics), so that either all rows of a
# method name their run or none does.
_DISPUTED = 3
# Columns that may differ whenever something is measured again, or passed on as an entry.
_OF_MEASURING = ("seconds", "made_with", "evidence", "checked", "external")


def phase_of(row: Mapping[str, Any]) -> str:
    """Return the phase of a row; rows of older tables have none and are pooled."""
    return str(row.get("phase", "all"))


def joined(tables_by_folder: Mapping[Path, Sequence[Row]]) -> list[Row]:
    """Join the rows of several tables; a row that several runs have under the same conditions is kept once. If two runs
    disagree on a method's scores, all its rows stay, with the end of the run's name in `run`. If they disagree on the
    dense model, the rows of other methods name in `beside` the run whose dense model they were measured beside.
    """
    names = short_names(tables_by_folder)
    answers: dict[tuple[Any, ...], dict[Path, Row]] = defaultdict(dict)
    for folder, rows in tables_by_folder.items():
        for row in rows:
            answers[(conditions_of(row), *(row.get(key) for key in _MEANING), phase_of(row))][folder] = row
    disputed = {
        meaning[:_DISPUTED]
        for meaning, by_folder in answers.items()
        if len(by_folder) > 1 and len({_untimed(row) for row in by_folder.values()}) > 1
    }
    without_one_dense = {conditions for conditions, method, *_ in disputed if method == "dense"}
    result: list[Row] = []
    for meaning, by_folder in answers.items():
        if meaning[:_DISPUTED] in disputed:
            result += [row | {"run": names[folder]} for folder, row in by_folder.items()]
        else:
            folder, row = next(iter(by_folder.items()))
            row = row | {"beside": names[folder]} if meaning[0] in without_one_dense else row
            made = both(one.get("made_with") for one in by_folder.values())
            result.append(row if made == row.get("made_with") else row | {"made_with": made})
    return result


def not_to_be_quoted(folders: Iterable[Path]) -> list[str]:
    """Return a sentence for each run that was only a first look (`run --quick`)."""
    found = []
    for folder in folders:
        warnings = ending_of(folder).get("warnings", [])
        found += [f"{folder.name}: {text}" for text in warnings if str(text).startswith(QUICK_NOTE)]
    return found


def made_by_other_rules(folders: Iterable[Path]) -> list[str]:
    """Return a sentence for each run whose table was matched and tested by another version of the rules than this
    package has (`source.TABLES`).
    """
    found = []
    for folder in folders:
        version = ending_of(folder).get("tables", 1)  # tables before the first version have none
        if version != TABLES:
            version = version if isinstance(version, int) else "unknown"
            found.append(
                f"The table of {folder.name} was made by version {version} of the rules for matching, intervals and "
                f"tests, and this is version {TABLES}: `adaptive-bench run --config {folder / 'config.yaml'} "
                f"--table-only` makes it again from its records."
            )
    return found


def short_names(folders: Iterable[Path]) -> dict[Path, str]:
    """Return the end of each run's name, its seeds and key; whole paths if two names end alike."""
    ends = {folder: "-".join(folder.name.split("-")[-2:]) for folder in folders}
    alike = len(set(ends.values())) < len(ends)
    return {folder: str(folder) if alike else end for folder, end in ends.items()}


def _untimed(row: Row) -> str:
    return json.dumps(
        {key: value for key, value in row.items() if key not in _OF_MEASURING}, sort_keys=True, default=str
    )
