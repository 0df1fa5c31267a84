"""`run.json`: how a run ended, with the digests of its table. A finished table is never replaced by a poorer one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.jobs.failure import Failure
from adaptive_bench.store.files import read_file


def keep_finished_table(folder: Path, failures: Sequence[Failure]) -> None:
    """Refuse to write a table that lacks what the one on disk has.

    Raises:
        EnvironmentProblem: The one on disk is of a run that was done, or nobody can tell any more, and not all of its
            records are there.
    """
    about = read_file(folder / "run.json")
    is_damaged = about is None and (folder / "run.json").is_file()
    if failures and (is_damaged or (about or {}).get("state") == "done"):
        raise EnvironmentProblem(
            f"A finished table is not replaced by a poorer one, but of the table in {str(folder)!r} {len(failures)} "
            f"piece(s) of work are missing by now, the first: {failures[0].work}. The table stays as it is. Put the "
            f"records back, or give the command without --table-only: it computes what is missing."
        )


def notes_before(folder: Path) -> list[str]:
    """What was noted before a run whose work is all on disk by now: nothing was looked at again."""
    return list((read_file(folder / "run.json") or {}).get("notes", []))  # of an older version nothing was noted
