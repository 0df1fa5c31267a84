"""Runs: plans a run, checks it, describes it and carries it out."""

from adaptive_bench.runs.estimate import about, describe
from adaptive_bench.runs.launching import Shard
from adaptive_bench.runs.run_checks import Preflight, preflight
from adaptive_bench.runs.run_plan import Plan, plan
from adaptive_bench.runs.runner import RunOutcome, run

__all__ = [
    "Plan",
    "Preflight",
    "RunOutcome",
    "Shard",
    "about",
    "describe",
    "plan",
    "preflight",
    "run",
]
