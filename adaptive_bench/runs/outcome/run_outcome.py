"""What a run gives back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_bench.jobs.failure import Failure
from adaptive_bench.runs.planning.memory import Memory
from adaptive_bench.store.files import read_file
from adaptive_bench.store.manifest import FILE as MANIFEST
from adaptive_bench.store.results import RUN, TABLES

_OUTPUTS = (*TABLES, RUN, MANIFEST, "data_card.md", "leaderboard.md")


@dataclass(frozen=True)
class RunOutcome:
    """What a run gives back.

    Attributes:
        rows: The table, as in `table.json`.
        folder: Where the table is.
        warnings: What a reader of the table should know.
        failures: Work that could not be done; empty if the run is complete.
        is_main_process: Whether this is the main process; only that one has a table.
        elsewhere: Where the rest of the work is done, if it is; there is no table before it ends.
    """

    rows: list[dict[str, Any]]
    folder: Path
    warnings: list[str]
    failures: list[Failure]
    elsewhere: str = ""
    is_main_process: bool = True

    @property
    def exit_code(self) -> int:
        """0 if everything was done, else 1."""
        return 1 if self.failures else 0


def outputs_of(folder: Path) -> list[str]:
    """Names of the files that a run has written at its end."""
    return [name for name in _OUTPUTS if (folder / name).is_file()]


def ended_before(folder: Path, memory: Memory | None) -> RunOutcome | None:
    """What the run ended with, if it did with the same records, and nothing was changed since."""
    if memory is None or not memory.is_same(outputs_of(folder)):
        return None
    about = read_file(folder / RUN) or {}
    return RunOutcome(json.loads((folder / "table.json").read_text(encoding="utf-8")), folder, about["warnings"], [])
