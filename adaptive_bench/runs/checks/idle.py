"""Settings that do nothing on the tasks of a run: who gives one expects it to count, so it is said beforehand."""

from __future__ import annotations

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.runs.checks.findings import Findings


def note_idle(config: RunConfig, findings: Findings) -> None:
    """Note what reads no setting, or refuse a run of which nothing would be left."""
    tasks = [find_task(name) for name in config.tasks]
    scored = ", ".join(task.name for task in tasks if task.kind == "loglikelihood")
    if not scored:
        return
    if config.evaluation.temperature is not None:
        findings.note(f"A temperature does nothing on {scored}: given answers are scored there, and none is drawn.")
    if config.match_phase != "decode":
        return
    if all(task.kind == "loglikelihood" for task in tasks):
        findings.stop(
            UsageError(
                f"By decode methods are matched on tokens that are fed one by one, got --phase decode and {scored}, "
                f"where none is. Leave --phase out, or add a task that writes."
            )
        )
    else:
        findings.note(f"By decode {scored} has no table: no token is fed one by one there.")
