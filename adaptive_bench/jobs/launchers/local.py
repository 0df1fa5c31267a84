"""The launcher `local` does jobs on this machine, in this process or in several."""

from __future__ import annotations

from adaptive_bench.jobs.launchers import LaunchRequest, LaunchResult


def launch(request: LaunchRequest) -> LaunchResult:
    """Do the work in this command."""
    return LaunchResult(request.run_here())
