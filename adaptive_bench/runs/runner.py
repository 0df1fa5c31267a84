"""A whole run: plan, work, table. What is on disk is never computed again; what is incomplete is marked as such."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from adaptive_bench import fork_server, guard, processes, registry, stopping
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, Interrupted, ToBeContinued
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.checks.preflight import Preflight, preflight
from adaptive_bench.runs.cost.estimate import Estimator
from adaptive_bench.runs.launchers import Launched, Order
from adaptive_bench.runs.outcome.answers import answers_of
from adaptive_bench.runs.outcome.data_card import data_card
from adaptive_bench.runs.outcome.method_facts import method_facts
from adaptive_bench.runs.outcome.naming import run_folder, write_beginning
from adaptive_bench.runs.outcome.table import make_table
from adaptive_bench.runs.planning.manifest import manifest_of, plan_of
from adaptive_bench.runs.planning.plan import plan, without_groups
from adaptive_bench.runs.planning.share import WHOLE, Share
from adaptive_bench.runs.workers.chains import Failure, has_own_process, named_plugins
from adaptive_bench.runs.workers.launch import left
from adaptive_bench.runs.workers.outdated import put_aside
from adaptive_bench.runs.workers.overwrite import Overwrite, remove_results
from adaptive_bench.runs.workers.printed import Printed
from adaptive_bench.runs.workers.waiting import wait_for_others
from adaptive_bench.runs.workers.work import follow
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic, manifest
from adaptive_bench.store.digest import digests
from adaptive_bench.store.keys import canonical
from adaptive_bench.store.runs import run_command
from adaptive_bench.store.schema import SCHEMA
from adaptive_bench.tables.floor_ceiling import floor_ceiling_notes
from adaptive_bench.tables.unparsable import unparsable_notes

Launcher = Callable[[Order], Launched]
SEALED_FILES = ("table.json", "answers.json", "methods.json")  # run.json has their digests


@dataclass(frozen=True)
class RunOutcome:
    """What a run gives back.

    Attributes:
        rows: The table, as in `table.json`.
        folder: Where the table is.
        warnings: What a reader of the table should know.
        failures: Work that could not be done; empty if the run is complete.
        led: Whether this is the process that leads; only that one has a table.
        elsewhere: Where the rest of the work is done, if it is; there is no table before it ends.
    """

    rows: list[dict[str, Any]]
    folder: Path
    warnings: list[str]
    failures: list[Failure]
    elsewhere: str = ""
    led: bool = True

    @property
    def exit_code(self) -> int:
        """0 if everything was done, else 1."""
        return 1 if self.failures else 0


def run(
    config: RunConfig,
    reporter: Reporter | None = None,
    jobs: int | None = None,
    *,
    share: Share = WHOLE,
    launcher: str = "local",
    resources: Path | None = None,
    table_only: bool = False,
    overwrite: Overwrite | str = Overwrite.only_missing,
    wait_s: float | None = None,
) -> RunOutcome:
    """Train, evaluate and match everything a config names, and write the table.

    Args:
        jobs: Processes to use; `None` decides by the size of the backbone and the number of cores.
        share: The part to do; whoever finishes the last part writes the table.
        launcher: Where the work is done, see `adaptive_bench.runs.launchers`.
        resources: YAML file for the launcher.
        table_only: Do nothing that is left; write the table of what is there, with what is missing as failures. The
            same as to overwrite `only-cache`.
        overwrite: What becomes of results that are on disk (see `runs.overwrite`).
        wait_s: With `table_only`: wait until others have done everything, or nobody has been at any of it for so long.

    Raises:
        UsageError: The config names something that does not exist or does not fit together.
        EnvironmentProblem: Model or data cannot be reached, or the output folder cannot be written.
        Interrupted: Ctrl-C, or a scheduler's signal; finished work is kept and the same command continues.
    """
    config = without_groups(config)
    if not processes.here().leads:
        with stopping.listening():  # the leader decides when to stop
            follow()
        return RunOutcome([], run_folder(config), [], [], led=False)
    reporter = reporter or SilentReporter()
    try:
        with redirect_stdout(Printed(reporter)):
            return _run(config, reporter, jobs, share, launcher, resources, table_only, Overwrite(overwrite), wait_s)
    finally:
        processes.here().dismiss()


def _run(
    config: RunConfig,
    reporter: Reporter,
    jobs: int | None,
    share: Share,
    launcher: str,
    resources: Path | None,
    table_only: bool,
    overwrite: Overwrite,
    wait_s: float | None,
) -> RunOutcome:
    launch: Launcher = registry.get("launchers", launcher)
    jobs = jobs if processes.here().alone else 1
    start_s = time.perf_counter()
    with atomic.writable(config.out):
        config.out.mkdir(parents=True, exist_ok=True)
    table_only = table_only or overwrite is Overwrite.only_cache
    folder = run_folder(config)
    methods = [MethodSpec.parse(text).name for text in config.methods]
    plugins = named_plugins(methods, config.tasks)
    if not table_only and any(map(has_own_process, methods)):
        fork_server.start()  # it loads the libraries while the run is planned
    with guard.watching(plugins):
        if overwrite is Overwrite.always:
            remove_results(plan(config), share)
        if table_only:  # where results are does not depend on what is here to compute others
            written = manifest.read(folder) if wait_s is None else None
            known = Preflight(plan(config, reporter) if written is None else plan_of(config, written, reporter))
        else:
            known = preflight(config, reporter, jobs, timed=share.is_whole)
            if overwrite is Overwrite.only_missing and put_aside(known.plan, reporter):
                known = preflight(config, reporter, jobs, timed=share.is_whole)
    whole = known.plan
    for note in known.notes:
        reporter.line(f"Note: {note}")
    atomic.update_text(folder / "config.yaml", yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    write_beginning(folder)
    manifest_of(whole).write(folder)
    try:
        with stopping.listening():
            if not table_only:
                estimator = known.estimator or Estimator(config.out)
                launched = launch(Order(whole, share, folder, reporter, estimator, jobs, resources, overwrite))
            elif wait_s is not None:
                wait_for_others(whole, reporter, wait_s)
    except (KeyboardInterrupt, stopping.Stopped) as error:
        kind = Interrupted if isinstance(error, KeyboardInterrupt) else ToBeContinued
        raise kind(
            f"Stopped. What was finished is kept in {str(config.out)!r}. The same command goes on from there, and "
            f"so does: {run_command(folder, registry.plugin_files())}"
        ) from None
    if table_only:
        failures = left(whole)
        _keep_finished_table(folder, failures)
    else:
        failures = list(launched.failures)
        if launched.submitted:
            return RunOutcome([], folder, known.notes, failures, launched.submitted)
        if not share.is_whole and (others := left(whole)):
            text = f"{len(others)} pieces of work are left to other shares of the run, among them {others[0].work}."
            return RunOutcome([], folder, known.notes, failures, text)
    with guard.watching(plugins):
        rows, warnings = make_table(whole)
    plain = [row.to_json() for row in rows]
    notes = known.notes if known.facts is not None else _notes_before(folder)
    matched = [row for row in plain if (row["axis"], row["phase"]) == (config.match_on, config.match_phase)]
    told = [*floor_ceiling_notes(plain, map(find_task, config.tasks)), *unparsable_notes(matched)]
    warnings = [*notes, *told, *warnings]
    about: dict[str, Any] = {
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
    atomic.update_text(folder / "table.json", atomic.json_text(plain))
    atomic.update_text(folder / "methods.json", atomic.json_text(method_facts(whole)))
    atomic.update_text(folder / "answers.json", canonical(answers_of(whole)) + "\n")
    atomic.update_text(folder / "data_card.md", data_card(whole))
    about["files"] = digests(folder, (folder / name for name in SEALED_FILES))
    if _is_new(folder, about):
        atomic.write_sealed(folder / "run.json", about)
    if "markdown" in registry.names("leaderboards"):
        render = registry.get("leaderboards", "markdown")
        atomic.update_text(
            folder / "leaderboard.md", render(_to_print(plain, config), [str(failure) for failure in failures])
        )
    return RunOutcome(plain, folder, warnings, failures)


def _keep_finished_table(folder: Path, failures: Sequence[Failure]) -> None:
    """Refuse to write a table that lacks what the one on disk has.

    Raises:
        EnvironmentProblem: The one on disk is of a run that was done, and not all of its records are there any more.
    """
    try:
        about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if failures and isinstance(about, dict) and about.get("state") == "done":
        raise EnvironmentProblem(
            f"A finished table is not replaced by a poorer one, but of the table in {str(folder)!r} {len(failures)} "
            f"piece(s) of work are missing by now, the first: {failures[0].work}. The table stays as it is. Put the "
            f"records back, or give the command without --table-only: it computes what is missing."
        )


def _is_new(folder: Path, about: Mapping[str, Any]) -> bool:
    """Whether a run ended otherwise than before; if not, it finished when it did, and nothing needs to be written."""
    try:
        before = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True
    times = {"finished": "", "took_s": 0.0, "content_sha256": ""}
    return not isinstance(before, dict) or {**before, **times} != json.loads(atomic.json_text({**about, **times}))


def _notes_before(folder: Path) -> list[str]:
    """What was noted before a run whose work is all on disk by now: nothing was looked at again."""
    try:
        return list(json.loads((folder / "run.json").read_text(encoding="utf-8"))["notes"])
    except (OSError, ValueError, KeyError, TypeError):  # none, or of an older version: nothing was noted
        return []


def _to_print(rows: list[dict[str, Any]], config: RunConfig) -> list[dict[str, Any]]:
    """Every measured axis in the matched phase; what is only projected is asked for by name."""
    return [row for row in rows if row["axis"] != "projected" and row["phase"] in (config.match_phase, "all")]
