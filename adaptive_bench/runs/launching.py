"""Has the work of a run done, here or elsewhere, until it is over or this command is asked to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from adaptive_bench import registry, stopping
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import Interrupted, ToBeContinued
from adaptive_bench.jobs.launchers import LaunchRequest, LaunchResult
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.work.waiting import wait_for_others
from adaptive_bench.store.runs import run_command

Launcher = Callable[[LaunchRequest], LaunchResult]


def launch(launcher: Launcher, request: LaunchRequest, config: RunConfig) -> LaunchResult:
    """What becomes of a request.

    Raises:
        Interrupted: Ctrl-C, or a scheduler's signal; finished work is kept.
    """
    with _stoppable(request.folder, config):
        return launcher(request)


def wait(plan: Plan, folder: Path, reporter: Reporter, wait_s: float) -> None:
    """Wait until others have done everything, or nobody has been at any of it for so long.

    Raises:
        Interrupted: Ctrl-C, or a scheduler's signal.
    """
    with _stoppable(folder, plan.config):
        wait_for_others(plan, folder, reporter, wait_s)


@contextmanager
def _stoppable(folder: Path, config: RunConfig) -> Iterator[None]:
    try:
        with stopping.listening():
            yield
    except (KeyboardInterrupt, stopping.Stopped) as error:
        kind = Interrupted if isinstance(error, KeyboardInterrupt) else ToBeContinued
        raise kind(
            f"Stopped. What was finished is kept in {str(config.out)!r}. Re-run the command to continue, "
            f"or: {run_command(folder, registry.plugin_files())}"
        ) from None
