"""Runs: the plan, its keys, the records on disk, and carrying it out."""

from adaptive_bench.runs.checks.describe import about
from adaptive_bench.runs.checks.preflight import Preflight, preflight
from adaptive_bench.runs.cost.estimate import describe
from adaptive_bench.runs.outcome.run_outcome import RunOutcome
from adaptive_bench.runs.planning.plan import Plan, plan
from adaptive_bench.runs.planning.shard import Shard
from adaptive_bench.runs.runner import run

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
