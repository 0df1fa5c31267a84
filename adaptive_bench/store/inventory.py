"""What an output folder holds, and what of it may be deleted.

Every record says which work is done, running, stopped or failed. A run refers to the records of its manifest, to the
training each evaluation hangs on, and to what a training starts from. Nothing that a run refers to is ever deleted, nor
is anything while somebody is at a record of the folder.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, message_of
from adaptive_bench.store import atomic, lock, manifest
from adaptive_bench.store.records import FILE, DialEvaluationRecord, Record
from adaptive_bench.store.runs import check_run, is_run, run_folders, run_name


@dataclass(frozen=True)
class RecordStatus:
    """One training or sweep.

    Attributes:
        work: `train`, or the task that is evaluated.
        method: Its spec.
        seed: Of the training.
        state: That of its record; `stopped` for one that says it is running but that no process holds, `damaged` for
            one that cannot be read or is not there.
        since: When it got there.
        progress: What is done of it: steps logged, or points measured.
        reason: Why it failed, or what is damaged.
        folder: Its record.
    """

    work: str
    method: str
    seed: int | None
    state: str
    since: str
    progress: str
    reason: str
    folder: Path


@dataclass(frozen=True)
class Removable:
    """A folder that nothing refers to.

    Attributes:
        what: For the reader.
        size_bytes: Of all files in it.
    """

    folder: Path
    what: str
    size_bytes: int


def pieces(out: Path) -> Iterator[RecordStatus]:
    """Every training and sweep in an output folder, each training before its sweeps, then those that a run
    ended with and that are not there; no plan is needed.
    """
    home = out / "records"
    for training, sweeps in _records(out):
        about = _piece(home / training, None)
        yield about
        for sweep in sweeps:
            yield _piece(home / sweep, about)
    finished: dict[str, str] = {}  # by record of a finished evaluation, or of its training, a run that lists it
    for folder in run_folders(out / "runs"):
        with suppress(AdaptiveBenchError):  # `show` says it
            listed = manifest.read(folder)
            for one in () if listed is None else listed.evaluations:
                finished |= dict.fromkeys((one.training, one.record) if one.asked else (), folder.name)
    for record, run in finished.items():
        training_of, _, sweep = record.partition("/")
        if not (home / record).is_dir() and (not sweep or (home / training_of).is_dir()):
            reason = f"The record is missing, with which {run} ended; the command of that run makes it again."
            yield RecordStatus("?" if sweep else "train", "?", None, "damaged", "", "", reason, home / record)


def _piece(folder: Path, training: RecordStatus | None) -> RecordStatus:
    record = DialEvaluationRecord(folder)
    try:
        about, status, state = record.read("config") or {}, record.read("status") or {}, str(record.state)
    except EnvironmentProblem as error:  # of a newer version, or not to be read
        work, seed = ("train", None) if training is None else ("?", training.seed)
        return RecordStatus(work, "?", seed, "damaged", "", "", message_of(error), folder)
    reason = str(status.get("reason", ""))
    if record.is_damaged:
        state, reason = "damaged", f"{FILE} cannot be read; the command of its run makes it again."
    elif state == "partial" and status.get("state") == "running":
        state = "stopped"
    if training is None:
        work, seed, progress = "train", about.get("seed"), _steps(folder, about, state)
    else:
        which, points = about.get("split", about.get("variant")), len(record.savings())
        work = str(about.get("task", "?")) + ("" if which is None else f" ({which})")
        seed, progress = training.seed, f"{points} point{'' if points == 1 else 's'}"
    method, since = str(about.get("method", "?")), str(status.get("since", ""))
    return RecordStatus(work, method, seed, state, since, progress, reason, folder)


def _steps(folder: Path, about: dict[str, Any], state: str) -> str:
    recipe = about.get("recipe")
    steps = recipe.get("steps", 0) if isinstance(recipe, dict) else "?"
    log = folder / "train.jsonl"
    done = steps if state == "done" else sum(1 for _ in log.open("rb")) if log.is_file() else 0
    return f"{done} of {steps} steps"


def of_run(run: Path) -> list[Removable]:
    """The folder of a run, and those of its records that nothing else refers to: no run, no training that starts from
    them, no evaluation that is not the run's.

    Raises:
        UsageError: It is no run of an output folder.
        EnvironmentProblem: It is under way, or what another run refers to cannot be told.
    """
    check_run(run)
    if run.is_symlink() or run.resolve().parent.name != "runs":
        raise UsageError(
            f"A run that is removed is a folder with its config.yaml in the `runs` of an output folder, got "
            f"{str(run)!r}, which is a link or lies elsewhere. Remove that one itself."
        )
    found, out = [Removable(run, "run", _size(run))], run.resolve().parent.parent
    try:
        listed = manifest.read(run)
    except AdaptiveBenchError:
        listed = None
    if listed is None:  # its folder is all that is known of it; `clean` finds its records
        return found
    _check_free(out, sorted({*listed.records}))
    return [*found, *_unreferenced(out, _referred_to(out, but=run), {*listed.records})]


def of_output(out: Path, *, trials: bool = False) -> list[Removable]:
    """Records of an output folder that no run refers to.

    Args:
        trials: Those as well that were never evaluated on test documents: trials of `tune`, which
            the same command would find again, or go on with where it was stopped.

    Raises:
        EnvironmentProblem: A record is under way, or what a run refers to cannot be told.
    """
    records = dict(_records(out))
    _check_free(out, [record for training, some in records.items() for record in (training, *some)])
    asked = {
        record
        for training, evaluations in records.items()
        if trials or not _is_trial(out, evaluations)
        for record in (training, *evaluations)
    }
    return list(_unreferenced(out, _referred_to(out), asked))


def remove(found: Iterable[Removable]) -> int:
    """Delete folders, each at a stroke; gives back how many bytes they held.

    Raises:
        EnvironmentProblem: One cannot be removed; those before it are gone.
    """
    total = 0
    for one in found:
        atomic.remove(one.folder)
        total += one.size_bytes
    return total


def _check_free(out: Path, records: Iterable[str]) -> None:
    if held := [record for record in records if lock.is_held(out / "records" / record)]:
        raise EnvironmentProblem(
            f"Records are removed when nobody is at any of them, but {held[0]} in {str(out)!r} is under way. Stop it, "
            f"or wait until it is done; `adaptive-bench status` shows it."
        )


def _records(out: Path) -> Iterator[tuple[str, list[str]]]:
    """Each training, with the evaluations of it, by their names below the folder of records."""

    def names(above: Path) -> list[str]:
        if not above.is_dir():
            return []
        with os.scandir(above) as entries:
            return sorted(one.name for one in entries if one.is_dir(follow_symlinks=False) and one.name[0] != ".")

    for training in names(out / "records"):
        yield training, [f"{training}/eval/{name}" for name in names(out / "records" / training / "eval")]


def _is_trial(out: Path, evaluations: Collection[str]) -> bool:
    """Whether a training was evaluated on validation documents alone, or not at all: a stopped study trained it
    for what it goes on with. What a run trains is the run's, evaluated or not.
    """
    said = [_said(out, record) for record in evaluations]
    return {about.get("split", "test") for about in said if about} <= {"validation"}


def _said(out: Path, record: str) -> dict[str, object]:
    return Record(out / "records" / record).read("config") or {}


def _referred_to(out: Path, but: Path | None = None) -> set[str]:
    """Records that the runs of an output folder refer to.

    Args:
        but: A run that is not asked.

    Raises:
        EnvironmentProblem: Nobody can tell what one refers to.
    """
    home, found = out / "runs", set[str]()
    for run in sorted(home.iterdir()) if home.is_dir() else ():
        if run.is_symlink() and not run.exists():
            raise EnvironmentProblem(
                f"What a run refers to is kept, but {str(run)!r} is a link that leads nowhere. Put back what it led "
                f"to, or remove the link if what that refers to may go."
            )
        if not is_run(run) or (but is not None and run.resolve() == but.resolve()):
            continue
        try:
            listed, why = manifest.read(run), "it has no manifest.json."
        except AdaptiveBenchError as error:
            listed, why = None, message_of(error)
        if listed is None:
            raise EnvironmentProblem(
                f"What a run refers to is kept, but of {run_name(run)!r} nobody can tell what that is: {why} Give its "
                f"command again, which writes that down, or remove it with `adaptive-bench rm`."
            )
        bases = {one.base for one in listed.trainings if one.base is not None}
        found |= {*listed.records, *(one.training for one in listed.evaluations), *bases}
    return found


def _unreferenced(out: Path, kept: set[str], asked: Collection[str]) -> Iterator[Removable]:
    """Of some records those that may go; a training goes with all evaluations of it, or stays."""
    records = dict(_records(out))
    staying = {
        training
        for training, evaluations in records.items()
        if any(record in kept or record not in asked for record in (training, *evaluations))
    }
    waiting = list(staying)
    while waiting:  # what a training starts from stays with it
        base = _said(out, waiting.pop()).get("base")
        if isinstance(base, str) and base in records and base not in staying:
            staying.add(base)
            waiting.append(base)
    for training, evaluations in records.items():
        unused = [one for one in evaluations if one in asked and one not in kept]
        for record in unused if training in staying else [training]:
            folder, said = out / "records" / record, _said(out, record)
            what = f"{said.get('method', '?')} on {said['task']}" if "task" in said else str(said.get("method", "?"))
            yield Removable(folder, what, _size(folder))


def _size(folder: Path) -> int:
    """Bytes of all files below a folder, of a link those of the link."""
    return sum(Path(place, name).lstat().st_size for place, _, names in os.walk(folder) for name in names)
