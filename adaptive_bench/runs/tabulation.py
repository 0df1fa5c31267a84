"""Writes the table of what there is of a run."""

from __future__ import annotations

import time
from pathlib import Path

from adaptive_bench import guard
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.jobs.failure import Failure
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.checks.preflight import Preflight
from adaptive_bench.runs.launching import wait
from adaptive_bench.runs.outcome.run_json import kept_table, notes_before
from adaptive_bench.runs.outcome.run_outcome import RunOutcome, ended_before
from adaptive_bench.runs.outcome.table_files import write_table
from adaptive_bench.runs.planning.manifest import manifest_of, sealed_manifest_of
from adaptive_bench.runs.planning.memory import Memory
from adaptive_bench.runs.preparation import plugins_of, prepare_table
from adaptive_bench.runs.work.left import left
from adaptive_bench.store import atomic
from adaptive_bench.store.files import read_once
from adaptive_bench.store.manifest import read as read_manifest


def tabulate(config: RunConfig, folder: Path, reporter: Reporter, wait_s: float | None) -> RunOutcome:
    """Write the table of what is there, with what is missing as failures. Arguments as for `run`.

    Raises:
        EnvironmentProblem: It would replace a finished table by a poorer one.
    """
    start_s = time.perf_counter()
    with atomic.writable(config.out):
        config.out.mkdir(parents=True, exist_ok=True)
    known = prepare_table(config, reporter, folder, from_manifest=wait_s is None)
    if (before := ended_before(folder, known.memory)) is not None:
        return before
    if wait_s is not None:
        wait(known.plan, folder, reporter, wait_s)
    failures = left(known.plan)
    if (kept := kept_table(folder, failures)) is not None:
        raise EnvironmentProblem(
            f"{kept} Put the records back, or give the command without --table-only: it computes what is missing."
        )
    if (listed := read_manifest(folder)) is not None:
        listed.check()
    return write_outcome(known, folder, failures, start_s)


def write_outcome(known: Preflight, folder: Path, failures: list[Failure], start_s: float) -> RunOutcome:
    """Write the table of a run whose work is over, as far as it will be; a finished one stays in its place."""
    notes = known.notes if known.facts is not None else notes_before(folder)
    if (kept := kept_table(folder, failures)) is not None:
        return RunOutcome([], folder, [*notes, kept], failures)
    # Seals and table are of the same bytes: they are read once.
    with read_once(), guard.watching(plugins_of(known.plan.config)):
        listed = manifest_of(known.plan) if failures else sealed_manifest_of(known.plan)
        listed.write(folder)
        memory = known.memory if known.facts is None else None  # where something was done it knows the files of before
        memory = memory or Memory(folder, known.plan)
        rows, warnings = write_table(known.plan, folder, failures, notes, start_s, memory)
    return RunOutcome(rows, folder, warnings, failures)
