"""Results that rest on a file that a plugin read and that is another one by now: they are put aside, not used again."""

from __future__ import annotations

from pathlib import Path

from adaptive_bench.jobs.plugins import named_plugins
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.planning.files_read import changed_since
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.works import DialEvaluation, TrainingRun
from adaptive_bench.store import atomic, attempts
from adaptive_bench.store.files import FOLDED

FOLDER = "outdated"  # beside the records, laid out as they are; nobody reads it


def put_aside(whole: Plan, reporter: Reporter) -> bool:
    """Put aside what is outdated of a plan, and what was trained from that or measured of it; says whether any was.
    What somebody is at is left to them.
    """
    methods = [*(training.spec.name for training in whole.trainings), *(sweep.spec.name for sweep in whole.sweeps)]
    if named_plugins(methods, (sweep.task for sweep in whole.sweeps)) is None:
        return False
    trainings: set[Path] = set()
    moved = False
    for training in whole.trainings:  # after what they start from
        changed = changed_since(training.record.files_read())
        if changed or (training.base is not None and training.base.folder in trainings):
            moved |= _move(training, whole, changed, reporter)
            trainings.add(training.folder)
    for sweep in whole.sweeps:
        if sweep.training.folder not in trainings and (changed := changed_since(sweep.record.files_read())):
            moved |= _move(sweep, whole, changed, reporter)
    return moved


def _move(work: TrainingRun | DialEvaluation, whole: Plan, changed: list[Path], reporter: Reporter) -> bool:
    if not work.folder.is_dir() or attempts.is_held(work.folder):
        return False
    out = whole.config.out
    target = out / FOLDER / work.folder.relative_to(out / "records")
    why = f"{str(changed[0])!r}, which was read for it, changed since" if changed else "what it was trained from is"
    reporter.line(f"{work}: outdated, as {why}. It is done anew; the old one is in {str(target)!r}.")
    with attempts.exclusive(work.folder, str(work), SilentReporter()):
        # The state goes first: half moved, it is work that nothing was done of.
        for path in sorted(work.folder.iterdir(), key=lambda path: path.name not in (FOLDED, "status.json")):
            if path.name != attempts.FOLDER:
                atomic.make_folder(target)
                atomic.remove(target / path.name)
                atomic.move(path, target / path.name)
    return True
