"""Tables and ranked lists of the published entries, and of a fresh `smoke` run, in digests and the cells that are read.

`python tests/golden/published.py` writes `published.json`.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("published.json")
ENTRIES = Path(__file__).parents[2] / "leaderboard" / "entries"
NAMES = (*sorted(path.name for path in ENTRIES.iterdir() if path.is_dir()), "smoke")
# Who measured a row, how long it took and the keys of its contents are no results.
_NO_RESULTS = {"asked", "backbone", "contents", "definition", "made_with", "seconds"}
_COLUMN = ("task", "metric", "axis", "phase")
_DIGITS = 9  # of a value in a digest: sums that are made in another order do not differ in them
_DIGITS_TRAINED = 4


def table_of(name: str, folder: Path) -> Path:
    """Where a board finds an entry, or the table of a run of `smoke` in a folder."""
    if name != "smoke":
        return ENTRIES / name / "table.json"
    from adaptive_bench.config import load_config
    from adaptive_bench.runs import run

    return run(load_config("smoke", {"out": folder, "device": "cpu"}), jobs=1).folder / "table.json"


def published(name: str, folder: Path) -> dict[str, Any]:
    """What is kept of a table: a digest of each column, the ranked lists, and the cells of each task's first metric,
    rounded as they are published.
    """
    from adaptive_bench.leaderboard.boards import read_board

    table = table_of(name, folder)
    board = read_board([table])
    rows: Sequence[Mapping[str, Any]] = (
        json.loads(table.read_text(encoding="utf-8")) if name == "smoke" else board.entries[table.parent].rows
    )
    columns: dict[str, list[str]] = {}
    cells: dict[str, dict[str, list[str]]] = {}
    first: dict[str, str] = {}
    for row in rows:
        columns.setdefault(" ".join(row[part] for part in _COLUMN), []).append(_line(row, name == "smoke"))
        if first.setdefault(row["task"], row["metric"]) == row["metric"]:
            spec = row["method"] if row["semantics"] == "bench" else f"{row['method']}@{row['semantics']}"
            cells.setdefault(row["task"], {}).setdefault(spec, []).append(_cell(row))
    return {
        "rows": len(rows),
        "columns": {column: _digest(lines) for column, lines in columns.items()},
        "lists": _lists(board),
        "cells": cells,
    }


def _lists(board: Any) -> dict[str, list[str]]:
    """By model and level the ranked list: rank, method, score and how much it scores above the static control."""
    from adaptive_bench.leaderboard.boards import groups_of
    from adaptive_bench.leaderboard.list_text import level_text, over_static, rank, score
    from adaptive_bench.leaderboard.standing import standings

    return {
        f"{group.name}: {level_text(one)}": [
            f"{rank(line)} {line.label}: {score(line)} {over_static(line, one)}" for line in one.lines
        ]
        for group in groups_of(board)
        for one in standings(group.board)
    }


def _line(row: Mapping[str, Any], trained: bool) -> str:
    digits = _DIGITS_TRAINED if trained else _DIGITS
    values = {key: value for key, value in row.items() if key not in _NO_RESULTS}
    rounded = {key: f"{value:.{digits}g}" if isinstance(value, float) else value for key, value in values.items()}
    return json.dumps(rounded, sort_keys=True)


def _cell(row: Mapping[str, Any]) -> str:
    numbers = ["n/a" if row[key] is None else f"{row[key]:.3f}" for key in ("score", "low", "high", "saved")]
    return f"{row['level']:g}: {numbers[0]} [{numbers[1]}, {numbers[2]}] saved {numbers[3]} {row['status']}"


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def main() -> None:
    """Write everything down."""
    with tempfile.TemporaryDirectory() as folder:
        values = {name: published(name, Path(folder)) for name in NAMES}
    FILE.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
