"""What a run does with results that are on disk.

`only-missing` (default)
    uses them and computes the rest.
`always`
    removes them, and computes all of the run again. Stopped half-way, it is continued with `only-missing`.
`never`
    uses them and computes what nothing is there of; what is incomplete or failed stays as it is and is marked.
`only-cache`
    uses them and computes nothing; what is missing is marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.jobs.job import Failure
from adaptive_bench.progress import SilentReporter
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.shard import Shard
from adaptive_bench.runs.planning.works import DialEvaluation, TrainingRun
from adaptive_bench.runs.work.jobs import RunJobGroup
from adaptive_bench.store import atomic, lock
from adaptive_bench.store.records import FILE


class Overwrite(StrEnum):
    """See the module's text."""

    only_missing = "only-missing"
    always = "always"
    never = "never"
    only_cache = "only-cache"


def remove_results(whole: Plan, shard: Shard) -> None:
    """Remove everything that a run, or a shard of it, would compute. Evaluations of other runs stay.

    Raises:
        EnvironmentProblem: A process is at work there; then nothing is removed of that record.
    """
    trainings = shard.of(whole)
    folders = {training.folder for training in trainings}
    for sweep in whole.sweeps:
        if sweep.training.folder in folders:
            _remove(sweep, keep=())
    for training in trainings:
        _remove(training, keep=("eval",))


def allowed(groups: Sequence[RunJobGroup], overwrite: Overwrite) -> tuple[list[RunJobGroup], list[Failure]]:
    """The work that a run may do of what is left, and what it leaves undone."""
    if overwrite is not Overwrite.never:
        return list(groups), []
    done: list[RunJobGroup] = []
    refused: list[Failure] = []
    for group in groups:
        if group.first is not None and group.first.is_begun:
            refused += [_refusal(str(job)) for job in group.jobs]
            continue
        kept = tuple(job for job in group.others if not job.is_begun)
        refused += [_refusal(str(job)) for job in group.others if job.is_begun]
        if group.first is not None or kept:
            done.append(replace(group, others=kept))
    return done, refused


def _refusal(work: str) -> Failure:
    return Failure(work, "what is on disk of it is incomplete, and --overwrite never leaves it so.", UsageError.kind)


def _remove(work: TrainingRun | DialEvaluation, keep: Sequence[str]) -> None:
    if not work.folder.is_dir():
        return
    if lock.is_held(work.folder):
        raise EnvironmentProblem(
            f"`--overwrite always` removes results that nobody is working at, but {work.record.owner} is running "
            f"`{work}` ({work.folder}). Wait for it, or end it."
        )
    with lock.exclusive(work.folder, str(work), SilentReporter()):
        # The record goes first: half removed, it is work that nothing was done of.
        for path in sorted(work.folder.iterdir(), key=lambda path: path.name != FILE):
            if path.name not in (*lock.FILES, *keep):
                atomic.remove(path)
