"""Runs: the plan, its keys, the records on disk, and carrying it out."""

from adaptive_bench.runs.describe import about
from adaptive_bench.runs.estimate import describe
from adaptive_bench.runs.plan import Plan, plan
from adaptive_bench.runs.preflight import Preflight, preflight
from adaptive_bench.runs.runner import RunOutcome, run
from adaptive_bench.runs.share import Share

__all__ = [
    "Plan",
    "Preflight",
    "RunOutcome",
    "Share",
    "about",
    "describe",
    "plan",
    "preflight",
    "run",
]
