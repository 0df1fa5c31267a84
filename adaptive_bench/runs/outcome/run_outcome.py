"""What a run gives back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_bench.jobs.job import Failure


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
