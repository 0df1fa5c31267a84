"""Writes the table of what there is of a run."""

from __future__ import annotations

import time
from pathlib import Path

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.jobs.job import Failure
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.checks.preflight import Preflight
from adaptive_bench.runs.launching import wait
from adaptive_bench.runs.outcome.run_json import kept_table, notes_before
from adaptive_bench.runs.outcome.run_outcome import RunOutcome
from adaptive_bench.runs.outcome.table_files import write_table
from adaptive_bench.runs.preparation import prepare_table
from adaptive_bench.runs.work.left import left
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.store.keys import run_key
from adaptive_bench.store.results import ending_of, read_table
from adaptive_bench.store.runs import KEY_DIGITS


def tabulate(config: RunConfig, folder: Path, reporter: Reporter, wait_s: float | None) -> RunOutcome:
    """Write the table of what is there, with what is missing as failures. Arguments as for `run`.

    Raises:
        EnvironmentProblem: It would replace a finished table by a poorer one.
    """
    start_s = time.perf_counter()
    with atomic.writable(config.out):
        config.out.mkdir(parents=True, exist_ok=True)
    if wait_s is not None:
        known = prepare_table(config, reporter, folder, from_manifest=False)
        wait(known.plan, folder, reporter, wait_s)
        return _tabulated(known, folder, start_s)
    return _tabulated(prepare_table(config, reporter, folder, from_manifest=True), folder, start_s)


def _tabulated(known: Preflight, folder: Path, start_s: float) -> RunOutcome:
    failures = left(known.plan, folder)
    if (kept := kept_table(folder, failures)) is not None:
        raise EnvironmentProblem(
            f"{kept} Put the records back, or give the command without --table-only: it computes what is missing."
        )
    return write_outcome(known, folder, failures, start_s)


def finished_elsewhere(config: RunConfig) -> RunOutcome | None:
    """What a finished run ended with, where a plugin of it is not here: its table. `None` where every plugin is here,
    which makes the table of the records.

    Raises:
        UsageError: The plugin is needed: there is no such finished run.
        EnvironmentProblem: The table cannot be read.
    """
    parsed = [MethodSpec.parse(text).name for text in config.methods]
    missing = [name for name in parsed if name not in registry.names("methods")]
    if not missing:
        return None
    key = run_key(config.model_dump(mode="json"))
    folder = next((config.out / "runs").glob(f"*-{key[:KEY_DIGITS]}"), None)
    about = {} if folder is None else ending_of(folder)
    if about.get("state") != "done":
        registry.check_name("methods", missing[0])
    assert folder is not None
    kept = f"The plugin of {missing[0]!r} is not here: the table stays as it is."
    return RunOutcome(read_table(folder / "table.json"), folder, [*about["warnings"], kept], [])


def write_outcome(known: Preflight, folder: Path, failures: list[Failure], start_s: float) -> RunOutcome:
    """Write the table of a run whose work is over, as far as it will be; a finished one stays in its place."""
    notes = known.notes if known.facts is not None else notes_before(folder)
    if (kept := kept_table(folder, failures)) is not None:
        return RunOutcome([], folder, [*notes, kept], failures)
    rows, warnings = write_table(known.plan, folder, failures, notes, start_s)
    return RunOutcome(rows, folder, warnings, failures)
