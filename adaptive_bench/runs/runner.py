"""A whole run: plan, work, table. What is on disk is never computed again; what is incomplete is marked as such."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from adaptive_bench import atomic, registry
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import Interrupted
from adaptive_bench.evaluation.floor_ceiling import floor_ceiling_notes
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.evaluation.unparsable import unparsable_notes
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.chains import Failure
from adaptive_bench.runs.data_card import data_card
from adaptive_bench.runs.keys import SCHEMA, key_of
from adaptive_bench.runs.launch import carry_out
from adaptive_bench.runs.preflight import preflight
from adaptive_bench.runs.table import make_table


@dataclass(frozen=True)
class RunOutcome:
    """What a run gives back.

    Attributes:
        rows: The table, as in `table.json`.
        folder: Where the table is.
        warnings: What a reader of the table should know.
        failures: Work that could not be done; empty if the run is complete.
    """

    rows: list[dict[str, Any]]
    folder: Path
    warnings: list[str]
    failures: list[Failure]

    @property
    def exit_code(self) -> int:
        """0 if everything was done, else 1."""
        return 1 if self.failures else 0


def run(config: RunConfig, reporter: Reporter | None = None, jobs: int | None = None) -> RunOutcome:
    """Train, evaluate and match everything a config names, and write the table.

    Args:
        jobs: Processes to use; `None` decides by the size of the backbone and the number of cores.

    Raises:
        UsageError: The config names something that does not exist or does not fit together.
        EnvironmentProblem: Model or data cannot be reached, or the output folder cannot be written.
        Interrupted: Ctrl-C; finished work is kept and the same command continues.
    """
    reporter = reporter or SilentReporter()
    start_s = time.perf_counter()
    with atomic.writable(config.out):
        config.out.mkdir(parents=True, exist_ok=True)
    known = preflight(config, reporter, jobs)
    whole = known.plan
    for note in known.notes:
        reporter.line(f"Note: {note}")
    folder = config.out / "runs" / _run_key(config)
    atomic.write_text(folder / "config.yaml", yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    try:
        failures = carry_out(whole, reporter, jobs, known.estimator)
    except KeyboardInterrupt:
        raise Interrupted(
            f"Stopped. What was finished is kept in {str(config.out)!r}. The same command goes on from there, and so "
            f"does: {_command(folder)}"
        ) from None
    rows, warnings = make_table(whole)
    plain = [row.to_json() for row in rows]
    notes = known.notes if known.facts is not None else _notes_before(folder)
    matched = [row for row in plain if (row["axis"], row["phase"]) == (config.match_on, config.match_phase)]
    told = [*floor_ceiling_notes(plain, map(find_task, config.tasks)), *unparsable_notes(matched)]
    warnings = [*notes, *told, *warnings]
    about = {
        "schema": SCHEMA,
        "state": "partial" if failures else "done",
        "methods": config.methods,
        "tasks": config.tasks,
        "model": config.model,
        "seeds": config.seeds,
        "match_on": config.match_on,
        "match_phase": config.match_phase,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "took_s": time.perf_counter() - start_s,
        "records": [cell.folder.name for cell in whole.cells],
        "notes": notes,
        "warnings": warnings,
        "failures": [str(failure) for failure in failures],
    }
    atomic.write_json(folder / "table.json", plain)
    atomic.write_json(folder / "run.json", about)
    atomic.write_text(folder / "data_card.md", data_card(whole))
    if "markdown" in registry.names("leaderboards"):
        render = registry.get("leaderboards", "markdown")
        atomic.write_text(
            folder / "leaderboard.md", render(_to_print(plain, config), [str(failure) for failure in failures])
        )
    return RunOutcome(plain, folder, warnings, failures)


def _notes_before(folder: Path) -> list[str]:
    """What was noted before a run whose work is all on disk by now: nothing was looked at again."""
    try:
        return list(json.loads((folder / "run.json").read_text(encoding="utf-8"))["notes"])
    except (OSError, ValueError, KeyError, TypeError):  # none, or of an older version: nothing was noted
        return []


def _run_key(config: RunConfig) -> str:
    """One folder for one table: where it is written and on what it is computed make no difference."""
    return key_of(config.model_dump(mode="json", exclude={"out", "device", "preset", "for_models"}))


def _command(folder: Path) -> str:
    """The command that repeats a run, plugins included."""
    plugins = [part for path in registry.plugin_files() for part in ("--plugin", str(path))]
    return shlex.join(["adaptive-bench", "run", "--config", str(folder / "config.yaml"), *plugins])


def _to_print(rows: list[dict[str, Any]], config: RunConfig) -> list[dict[str, Any]]:
    """Every measured axis in the matched phase; what is only projected is asked for by name."""
    return [row for row in rows if row["axis"] != "projected" and row["phase"] in (config.match_phase, "all")]
