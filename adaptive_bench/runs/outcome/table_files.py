"""The table of a run, and the files beside it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from adaptive_bench import registry
from adaptive_bench.jobs.failure import Failure
from adaptive_bench.runs.outcome.data_card import data_card
from adaptive_bench.runs.outcome.method_facts import method_facts
from adaptive_bench.runs.outcome.notes import notes_on
from adaptive_bench.runs.outcome.table import outcome_of
from adaptive_bench.runs.planning.manifest import manifest_of
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.source import TABLES
from adaptive_bench.store import atomic
from adaptive_bench.store.keys import canonical, run_key
from adaptive_bench.store.results import write_run
from adaptive_bench.store.schema import SCHEMA


def write_table(
    whole: Plan, folder: Path, failures: Sequence[Failure], notes: Sequence[str], start_s: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """Match what is measured and write it down; gives back the rows, and what a reader should know.

    Args:
        failures: What the table lacks.
        notes: What was noted before the run.
        start_s: When the run began, by `time.perf_counter`.
    """
    config = whole.config
    found = outcome_of(whole)
    plain = [row.to_json() for row in found.rows]
    warnings = [*notes, *notes_on(plain, config), *found.warnings]
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
    atomic.update_text(folder / "table.json", atomic.rows_text(plain))
    manifest_of(whole).write(folder)
    atomic.update_text(folder / "methods.json", atomic.json_text(method_facts(whole)))
    atomic.update_text(folder / "answers.json", canonical(found.answers) + "\n")
    atomic.update_text(folder / "data_card.md", data_card(whole))
    write_run(folder, about)
    table = [folder / "table.json"]
    if "markdown" in registry.names("leaderboards"):
        render = registry.get("leaderboards", "markdown")
        atomic.update_text(folder / "leaderboard.md", render(table, [str(failure) for failure in failures]))
    if "svg" in registry.names("leaderboards"):
        atomic.update_text(folder / "leaderboard.svg", registry.get("leaderboards", "svg")(table))
    return plain, warnings
