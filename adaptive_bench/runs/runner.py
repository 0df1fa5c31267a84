"""A whole run: plan, work, table. What is on disk is never computed again; what is incomplete is marked as such."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from adaptive_bench import atomic, registry
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import Interrupted
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.evaluation.rows import Row, dial_warnings, table_rows
from adaptive_bench.model.twins import twin_warnings
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.backbones import find_device
from adaptive_bench.runs.chains import Failure
from adaptive_bench.runs.data_card import data_card
from adaptive_bench.runs.keys import SCHEMA, key_of
from adaptive_bench.runs.launch import carry_out
from adaptive_bench.runs.plan import Plan, Sweep, plan
from adaptive_bench.spec import MethodSpec


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
    find_device(config.device)
    whole = plan(config, reporter)
    folder = config.out / "runs" / _run_key(config)
    atomic.write_text(folder / "config.yaml", yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    try:
        failures = carry_out(whole, reporter, jobs)
    except KeyboardInterrupt:
        raise Interrupted(
            f"Stopped. What was finished is kept in {str(config.out)!r}. The same command goes on from there, and so "
            f"does: adaptive-bench run --config {folder / 'config.yaml'}"
        ) from None
    rows, warnings = _table(whole)
    plain = [row.to_json() for row in rows]
    about = {
        "schema": SCHEMA,
        "state": "partial" if failures else "done",
        "methods": config.methods,
        "tasks": config.tasks,
        "model": config.model,
        "seeds": config.seeds,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "took_s": time.perf_counter() - start_s,
        "records": [cell.folder.name for cell in whole.cells],
        "warnings": warnings,
        "failures": [str(failure) for failure in failures],
    }
    atomic.write_json(folder / "table.json", plain)
    atomic.write_json(folder / "run.json", about)
    atomic.write_text(folder / "data_card.md", data_card(whole))
    if "markdown" in registry.names("leaderboards"):
        atomic.write_text(folder / "leaderboard.md", registry.get("leaderboards", "markdown")(plain))
    return RunOutcome(plain, folder, warnings, failures)


def _run_key(config: RunConfig) -> str:
    """One folder for one table: where it is written and on what it is computed make no difference."""
    return key_of(config.model_dump(mode="json", exclude={"out", "device"}))


def _table(whole: Plan) -> tuple[list[Row], list[str]]:
    """Rows in the order of methods and tasks, and what is wrong with them."""
    rows: list[Row] = []
    warnings: list[str] = []
    for text in whole.config.methods:
        spec = MethodSpec.parse(text)
        for name in whole.config.tasks:
            sweeps = [sweep for sweep in whole.sweeps if sweep.spec == spec and sweep.task == find_task(name).name]
            finished = {sweep.cell.seed: list((sweep.finished() or {}).values()) for sweep in sweeps}
            measured = [evaluation for evaluations in finished.values() for evaluation in evaluations]
            if not measured:
                continue
            metrics = [metric for metric in find_task(name).metrics if metric in measured[0].scores]
            found = table_rows(spec, name, metrics, finished, sweeps[0].levels, sweeps[0].curves)
            if not all(finished.values()):
                # A seed without points was not "outside" a level: it is missing.
                found = [replace(row, status="partial") for row in found]
            rows += found
            curve = sweeps[0].matched_curve
            warnings += dial_warnings(spec, name, metrics[0], finished, whole.config.match_on, curve)
            warnings += [text for sweep in sweeps for text in _calibration_warnings(sweep)]
    if rows and not whole.config.train.steps:
        warnings.append(
            "Nothing was trained (0 steps): models are evaluated as they are, with initial values of whatever "
            "parameters a method adds."
        )
    return rows, list(dict.fromkeys([*warnings, *_twin_warnings(whole)]))


def _twin_warnings(whole: Plan) -> list[str]:
    """Specs of the run that do exactly the same: one of them, or the method, is not what its name says."""
    warnings = []
    for seed in whole.config.seeds:
        found = {
            sweep.spec: about["sha256"]
            for sweep in whole.sweeps
            if sweep.cell.seed == seed and (about := sweep.record.read("behaviour.json")) is not None
        }
        warnings += twin_warnings(found)
    return warnings


def _calibration_warnings(sweep: Sweep) -> list[str]:
    """Dial values whose thresholds skip far more or less than asked for. Measured savings are right all the same."""
    calibration = sweep.record.read("calibration.json") or {"dials": []}
    off = [entry for entry in calibration["dials"] if entry["status"] == "fail"]
    return [
        f"{sweep.spec}, seed {sweep.cell.seed}: thresholds calibrated for {entry['requested']:.0%} skipped tokens skip "
        f"{entry['realised']:.0%} of the calibration text. Savings in the table are measured, not requested."
        for entry in off
    ]
