"""`run.json`: how a run ended, with the digests of its table. A finished table is never replaced by a poorer one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.jobs.failure import Failure
from adaptive_bench.store import atomic
from adaptive_bench.store.digest import digests
from adaptive_bench.store.files import read_file
from adaptive_bench.store.schema import SCHEMA

SEALED_FILES = ("table.json", "answers.json", "methods.json")  # run.json has their digests


def write_run(folder: Path, about: Mapping[str, Any]) -> None:
    """Say how a run ended, once its table is written; nothing is written if it ended like this before."""
    about = {"schema": SCHEMA, **about, "files": digests(folder, (folder / name for name in SEALED_FILES))}
    if _is_new(folder, about):
        atomic.write_sealed(folder / "run.json", about)


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


def _is_new(folder: Path, about: Mapping[str, Any]) -> bool:
    """Whether a run ended otherwise than before; if not, it finished when it did, and nothing needs to be written."""
    before = read_file(folder / "run.json")
    times = {"finished": "", "took_s": 0.0}
    return before is None or {**before, **times} != json.loads(atomic.json_text({**about, **times}))


def notes_before(folder: Path) -> list[str]:
    """What was noted before a run whose work is all on disk by now: nothing was looked at again."""
    return list((read_file(folder / "run.json") or {}).get("notes", []))  # of an older version nothing was noted
