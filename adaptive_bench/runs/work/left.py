"""What a plan still lacks."""

from __future__ import annotations

from pathlib import Path

from adaptive_bench.jobs.job import Failure
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.store.records import Record
from adaptive_bench.store.runs import retry_command


def left(plan: Plan, run: Path) -> list[Failure]:
    """What a plan still lacks, and why as far as the records know.

    Args:
        run: Folder of the run whose plan it is.
    """
    untrained = plan.untrained
    failures = [_why(str(training), training.record, run) for training in untrained]
    missing = {training.folder for training in untrained}
    for sweep in plan.sweeps:
        if sweep.training.folder not in missing and not sweep.is_complete:
            failures.append(_why(str(sweep), sweep.record, run))
    return failures


def _why(work: str, record: Record, run: Path) -> Failure:
    state = record.state
    if state == "failed":
        return Failure(work, record.reason, "Failed before", record.folder / "log.txt")
    about = {"planned": "it was not begun", "running": f"{record.owner} is running it"}
    reason = about.get(state, "its process has ended before it was done")
    return Failure(work, f"{reason}. `{retry_command(run)}` does it.", "Not finished")


def settle(plan: Plan) -> None:
    """Say of finished work that it is done where a killed process could not."""
    for training in plan.trainings:
        if training.finished:
            training.record.mark_done()
    for sweep in plan.sweeps:
        if sweep.is_complete:
            sweep.record.mark_done()
