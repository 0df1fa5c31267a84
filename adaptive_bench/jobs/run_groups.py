"""Does groups of jobs, in this process or in several, with a bar for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_bench.jobs.failure import Failure
from adaptive_bench.jobs.job import JobGroup, JobT, plugins_of, run_job
from adaptive_bench.jobs.overall_progress import OverallProgress
from adaptive_bench.jobs.pool import in_parallel
from adaptive_bench.jobs.watchdog import Limits, watched
from adaptive_bench.progress import Reporter


def run_groups(groups: Sequence[JobGroup[JobT]], reporter: Reporter, workers: int, limits: Limits) -> list[Failure]:
    """Do groups of jobs; gives back what could not be done. Work that fails does not stop the rest; only what builds on
    it is left out.

    Args:
        workers: Processes to use at once. One is this process itself, unless methods of plugins are among the jobs:
            these, and then ours too, have processes of their own (`jobs.pool`).
        limits: Of each job; one that never ends is ended from outside.
    """
    jobs = [job for group in groups for job in group.jobs]
    with OverallProgress(reporter, [job.estimate for job in jobs], workers) as overall:
        if workers == 1 and limits.timeout_s is None and not any(map(plugins_of, jobs)):
            return _one_after_the_other(groups, overall, limits)
        return in_parallel(groups, overall, workers, limits)


def _one_after_the_other(groups: Sequence[JobGroup[JobT]], reporter: Reporter, limits: Limits) -> list[Failure]:
    failures = []
    for group in groups:
        for job in group.jobs:
            with watched(job, limits, reporter) as noting:
                found = run_job(job, noting)
            failures += found
            for failure in found:
                reporter.line(f"Failed: {failure}")
            if found and job is group.first:
                break
    return failures
