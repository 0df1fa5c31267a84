"""`run.json`: how a run ended. A finished table is never replaced by a poorer one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.jobs.job import Failure
from adaptive_bench.store.results import ending_of


def holds_finished_table(folder: Path) -> bool:
    """Whether the table on disk is of a run that was done, or nobody can tell any more."""
    try:
        about = ending_of(folder)
    except EnvironmentProblem:
        return True
    return about.get("state") == "done" or (not about and (folder / "table.json").is_file())


def kept_table(folder: Path, failures: Sequence[Failure]) -> str | None:
    """Why a table that lacks what the one on disk has is not written; `None` where it may be."""
    if not failures or not holds_finished_table(folder):
        return None
    return (
        f"A finished table is not replaced by a poorer one, but of the table in {str(folder)!r} {len(failures)} "
        f"piece(s) of work are missing by now, the first: {failures[0].work}. The table stays as it is."
    )


def notes_before(folder: Path) -> list[str]:
    """What was noted before a run whose work is all on disk by now: nothing was looked at again."""
    try:
        return list(ending_of(folder).get("notes", []))
    except EnvironmentProblem:  # it is written again now
        return []
