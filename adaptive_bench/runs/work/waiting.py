"""Waiting for work that others do, with nothing to ask but the records."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from adaptive_bench import stopping
from adaptive_bench.progress import Reporter, duration
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.work.left import left
from adaptive_bench.store import lock

_LOOK_S = 10.0  # between two looks at the records
_STEP_S = 0.5  # between two looks whether this process was asked to stop


def wait_for_others(
    plan: Plan, run: Path, reporter: Reporter, quiet_s: float, now_s: Callable[[], float] = time.monotonic
) -> None:
    """Wait until everything of a plan is done, or until nobody has been at any of it for `quiet_s`: then what is left
    was given up, or is not done by anybody.

    What has failed is waited for as well: whoever is in charge may try it again.

    Raises:
        Stopped: This process was asked to end.
    """
    watches: dict[Path, lock.Watch] = {}
    last_s, told = now_s(), False
    while missing := left(plan, run):
        if any(lock.is_held(one, watches.setdefault(one, lock.Watch(one))) for one in _folders(plan)):
            last_s = now_s()
        elif now_s() - last_s >= quiet_s:
            reporter.line(f"Nobody has been at what is left for {duration(quiet_s)}: {missing[0]}")
            return
        if not told:
            reporter.line(f"Waiting for {len(missing)} pieces of work that others do, among them {missing[0].work}")
            told = True
        end_s = now_s() + min(_LOOK_S, quiet_s)
        while now_s() < end_s:
            stopping.check()
            time.sleep(min(_STEP_S, quiet_s))


def _folders(plan: Plan) -> list[Path]:
    """Records of what is not done."""
    trainings = [training.folder for training in plan.trainings if not training.finished]
    return trainings + [sweep.folder for sweep in plan.sweeps if not sweep.is_complete]
