"""Launchers: where jobs are done. Each is a function from a `LaunchRequest` to what became of it.

Another package adds one with an entry point in the group `adaptive_bench.launchers`.
"""

from adaptive_bench.jobs.launchers.request import LaunchRequest, LaunchResult, PendingJob

__all__ = ["LaunchRequest", "LaunchResult", "PendingJob"]
