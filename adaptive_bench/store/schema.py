"""The version of what runs write: in every JSON file of a record, of a run and of a timing, under `schema`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem

SCHEMA = 3  # 2 had a file for each section of a record


def check_schema(values: Mapping[str, Any], path: Path | str) -> None:
    """Refuse what a newer version wrote. Files without a version are as old as the first one.

    Raises:
        EnvironmentProblem: It did.
    """
    if (found := values.get("schema", SCHEMA)) > SCHEMA:
        raise EnvironmentProblem(
            f"This version of adaptive-bench reads what is written in schema {SCHEMA} or before, got schema {found!r} "
            f"in {str(path)!r}. Install the version that wrote it, or choose another --out."
        )
