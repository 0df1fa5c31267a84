"""Tables of finished runs: where they lie, and how several become one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem

Row = dict[str, Any]
_MEANING = ("method", "semantics", "task", "metric", "axis", "level", "timing", "projected_shape")


def tables(folder: Path) -> list[Path]:
    """The tables of a run's folder, or of every run below a folder.

    Raises:
        EnvironmentProblem: There is none.
    """
    found = [folder / "table.json"] if (folder / "table.json").is_file() else sorted(folder.rglob("table.json"))
    if not found:
        raise EnvironmentProblem(
            f"A finished run leaves a table.json, but there is none in {str(folder)!r}. Run `adaptive-bench run` "
            f"first, or name the folder that its --out was."
        )
    return found


def newest(folder: Path) -> Path:
    """The table below a folder that was written last."""
    return max(tables(folder), key=lambda path: path.stat().st_mtime)


def phase_of(row: Mapping[str, Any]) -> str:
    """The phase of a row; those of older tables are pooled."""
    return str(row.get("phase", "all"))


def joined(tables_by_folder: Mapping[Path, Sequence[Row]]) -> list[Row]:
    """One list of rows. Where two runs disagree on a score, both stay and their methods carry the name of the run."""
    answers: dict[tuple[Any, ...], dict[Path, Row]] = defaultdict(dict)
    for folder, rows in tables_by_folder.items():
        for row in rows:
            answers[(*(row.get(key) for key in _MEANING), phase_of(row))][folder] = row
    disputed = {
        meaning[:2]
        for meaning, by_folder in answers.items()
        if any(row != next(iter(by_folder.values())) for row in by_folder.values())
    }
    result: list[Row] = []
    for meaning, by_folder in answers.items():
        if meaning[:2] in disputed:
            result += [row | {"method": f"{row['method']} ({folder.name})"} for folder, row in by_folder.items()]
        else:
            result.append(next(iter(by_folder.values())))
    return result
