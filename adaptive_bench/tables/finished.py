"""Tables of finished runs: where they lie, and how the rows of several come together."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.tables.comparable import conditions_of

Row = dict[str, Any]
_MEANING = ("method", "semantics", "task", "metric", "axis", "level", "timing", "projected_shape")
_DISPUTED = 3  # conditions, method and semantics: all rows of a method carry the name of its run, or none
_TIMES = ("seconds",)  # they differ whenever something is measured again


def tables(folder: Path) -> list[Path]:
    """The tables of a run's folder, or of every run below a folder.

    Raises:
        EnvironmentProblem: There is none.
    """
    found = [folder / "table.json"] if (folder / "table.json").is_file() else files_of_runs(folder, "table.json")
    if not found:
        raise EnvironmentProblem(
            f"A finished run leaves a table.json, but there is none in {str(folder)!r}. Run `adaptive-bench run` "
            f"first, or name the folder that its --out was."
        )
    return found


def files_of_runs(folder: Path, name: str) -> list[Path]:
    """Files of a name below a folder, in order; not among the records of an output folder, which are many and hold no
    run, nor where nothing can be read.
    """
    found = []
    for place, below, files in os.walk(folder):
        if name in files:
            found.append(Path(place) / name)
        below[:] = [one for one in below if not (one == "records" and "runs" in below)]
    return sorted(found)


def newest(folder: Path) -> Path:
    """The table below a folder that was written last."""
    return max(tables(folder), key=lambda path: path.stat().st_mtime)


def phase_of(row: Mapping[str, Any]) -> str:
    """The phase of a row; those of older tables are pooled."""
    return str(row.get("phase", "all"))


def joined(tables_by_folder: Mapping[Path, Sequence[Row]]) -> list[Row]:
    """One list of rows, those of comparable conditions once. Where two runs disagree on a score under the same
    conditions, both stay and their methods carry the end of the run's name.
    """
    names = short_names(tables_by_folder)
    answers: dict[tuple[Any, ...], dict[Path, Row]] = defaultdict(dict)
    for folder, rows in tables_by_folder.items():
        for row in rows:
            answers[(conditions_of(row), *(row.get(key) for key in _MEANING), phase_of(row))][folder] = row
    disputed = {
        meaning[:_DISPUTED]
        for meaning, by_folder in answers.items()
        if len({_untimed(row) for row in by_folder.values()}) > 1
    }
    result: list[Row] = []
    for meaning, by_folder in answers.items():
        if meaning[:_DISPUTED] in disputed:
            result += [row | {"method": f"{row['method']} ({names[folder]})"} for folder, row in by_folder.items()]
        else:
            result.append(next(iter(by_folder.values())))
    return result


def short_names(folders: Iterable[Path]) -> dict[Path, str]:
    """Seeds and key, the end of a run's name; whole paths where two runs end alike."""
    ends = {folder: "-".join(folder.name.split("-")[-2:]) for folder in folders}
    alike = len(set(ends.values())) < len(ends)
    return {folder: str(folder) if alike else end for folder, end in ends.items()}


def _untimed(row: Row) -> str:
    return json.dumps({key: value for key, value in row.items() if key not in _TIMES}, sort_keys=True, default=str)
