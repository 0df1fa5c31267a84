"""The table of a run, and the files beside it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.jobs.failure import Failure
from adaptive_bench.runs.outcome.data_card import data_card
from adaptive_bench.runs.outcome.differences import differences
from adaptive_bench.runs.outcome.method_facts import method_facts
from adaptive_bench.runs.outcome.notes import notes_on
from adaptive_bench.runs.outcome.run_outcome import outputs_of
from adaptive_bench.runs.outcome.table import outcome_of
from adaptive_bench.runs.planning.memory import Memory
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.source import TABLES
from adaptive_bench.store import atomic
from adaptive_bench.store.digest import changed
from adaptive_bench.store.files import read_file
from adaptive_bench.store.keys import canonical, run_key
from adaptive_bench.store.manifest import Manifest
from adaptive_bench.store.manifest import read as read_manifest
from adaptive_bench.store.results import RUN, write_run
from adaptive_bench.store.schema import SCHEMA

_TABLE = "table.json"


def write_table(
    whole: Plan,
    listed: Manifest,
    folder: Path,
    failures: Sequence[Failure],
    notes: Sequence[str],
    start_s: float,
    memory: Memory,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Match what is measured and write it down; gives back the rows, and what a reader should know.

    Args:
        listed: The records that the table is made of.
        failures: What the table lacks.
        notes: What was noted before the run.
        start_s: When the run began, by `time.perf_counter`.
        memory: Of the run; of one that is done it is kept.
    """
    config = whole.config
    found = outcome_of(whole, memory)
    plain = [row.to_json() for row in found.rows]
    table = atomic.rows_text(plain)
    warnings = [*notes, *notes_on(plain, config), *found.warnings, *_other_code(folder, listed, table)]
    about: dict[str, Any] = {
        "schema": SCHEMA,
        "tables": TABLES,
        "run_key": run_key(config.model_dump(mode="json")),
        "state": "partial" if failures else "done",
        "methods": config.methods,
        "tasks": config.tasks,
        "model": config.model,
        "seeds": config.seeds,
        "match_on": config.match_on,
        "match_phase": config.match_phase,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "took_s": time.perf_counter() - start_s,
        "records": [training.folder.name for training in whole.trainings],
        "notes": list(notes),
        "warnings": warnings,
        "failures": [str(failure) for failure in failures],
    }
    atomic.update_text(folder / _TABLE, table)
    # After the table: a list is never beside an intact table that was made of other records.
    listed.write(folder)
    atomic.update_text(folder / "methods.json", atomic.json_text(method_facts(whole)))
    atomic.update_text(folder / "answers.json", canonical(found.answers) + "\n")
    atomic.update_text(folder / "data_card.md", data_card(whole))
    write_run(folder, about)
    if "markdown" in registry.names("leaderboards"):
        render = registry.get("leaderboards", "markdown")
        atomic.update_text(
            folder / "leaderboard.md", render(_to_print(plain, config), [str(failure) for failure in failures])
        )
    if "svg" in registry.names("leaderboards"):
        matched = [row for row in plain if (row["axis"], row["phase"]) == (config.match_on, config.match_phase)]
        atomic.update_text(folder / "leaderboard.svg", registry.get("leaderboards", "svg")(matched))
    if not failures:
        memory.keep(outputs_of(folder))
    return plain, warnings


def _other_code(folder: Path, listed: Manifest, table: str) -> list[str]:
    """That a finished table is about to be replaced by another one of the same records, where nobody raised the version
    of what is made of them: a sentence, or none.
    """
    about = read_file(folder / RUN) or {}
    if about.get("state") != "done" or about.get("tables", 1) != TABLES:
        return []
    if (seal := about.get("files", {}).get(_TABLE)) is None or changed(folder, {_TABLE: seal}):
        return []  # what stands there is not what the run wrote
    if (text := (folder / _TABLE).read_text(encoding="utf-8")) == table:
        return []
    # With what a row was made is read off files that others add to, and moves no number.
    said, now = (
        [{key: value for key, value in row.items() if key != "made_with"} for row in json.loads(one)]
        for one in (text, table)
    )
    try:
        before = read_manifest(folder)
    except EnvironmentProblem:  # it was damaged, which was said when the run began
        return []
    different = differences(said, now)
    if not different or before is None or not _is_of_same(before, listed):
        return []
    return [
        f"The same records give another table than this run finished with, by the code and the libraries that are here "
        f"now, though the version of the rules of tables is the same ({TABLES}). {len(different)} value(s) or row(s) "
        f"differ, the first: {different[0]}. If that is meant, raise TABLES in adaptive_bench/source.py; else correct "
        f"the code and give the same command again."
    ]


def _is_of_same(before: Manifest, listed: Manifest) -> bool:
    """Whether the records of a finished table are those that are listed, and still what they were."""
    same = all(getattr(before, name) == getattr(listed, name) for name in ("trainings", "evaluations", "timings"))
    return same and set(before.seals) == set(before.records) and not any(before.broken())


def _to_print(rows: list[dict[str, Any]], config: RunConfig) -> list[dict[str, Any]]:
    """Every measured axis in the matched phase; what is only projected is asked for by name."""
    return [row for row in rows if row["axis"] != "projected" and row["phase"] in (config.match_phase, "all")]
