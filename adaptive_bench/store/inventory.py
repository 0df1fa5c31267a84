"""Lists what an output folder holds, and which parts of it may be deleted.

Every record says whether its work is done, running, stopped or failed. A run refers to the records in its manifest, to
the training behind each evaluation, and to the training that another training starts from. Nothing that a run refers to
is ever deleted, and nothing is deleted while a process works on the records in question.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, message_of
from adaptive_bench.store import atomic, lock, manifest
from adaptive_bench.store.records import FILE, DialEvaluationRecord, Record
from adaptive_bench.store.runs import check_run, is_run, run_name


@dataclass(frozen=True)
class RecordStatus:
    """The status of one training or sweep.

    Attributes:
        work: `train`, or the task that is evaluated.
        method: The method's spec.
        seed: Seed of the training.
        state: The state of the record; `stopped` if the record says `running` but no process holds it, `damaged` if the
            record cannot be read.
        since: When the record entered this state.
        progress: How much is done: steps logged, or points measured.
        reason: Why the work failed, or what is damaged.
        folder: Folder of the record.
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
        what: What the folder holds, for the reader.
        size_bytes: Total size of the files in it.
    """

    folder: Path
    what: str
    size_bytes: int


def pieces(out: Path) -> Iterator[RecordStatus]:
    """List every training and sweep in an output folder, each training before its sweeps."""
    home = out / "records"
    for training, sweeps in _records(out):
        about = _piece(home / training, None)
        yield about
        for sweep in sweeps:
            yield _piece(home / sweep, about)


def _piece(folder: Path, training: RecordStatus | None) -> RecordStatus:
    record = DialEvaluationRecord(folder)
    try:
        about, status, state = record.read("config") or {}, record.read("status") or {}, str(record.state)
    except EnvironmentProblem as error:  # a newer version wrote it, or it may not be read
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
    """List what may be deleted with a run: its folder, and those of its records that nothing else needs: no other run,
    no training that starts from them, and no evaluation outside of the run.

    Raises:
        UsageError: The folder is not a run of an output folder.
        EnvironmentProblem: The run is under way, or it is unknown which records another run refers to.
    """
    check_run(run)
    if run.is_symlink() or run.resolve().parent.name != "runs":
        raise UsageError(
            f"Only a run that is a folder in the `runs` of an output folder can be removed, got {str(run)!r}, which is "
            f"a link or lies elsewhere. Remove that folder or link yourself."
        )
    found, out = [Removable(run, "run", _size(run))], run.resolve().parent.parent
    try:
        listed = manifest.read(run)
    except AdaptiveBenchError:
        listed = None
    if listed is None:  # its records are not known; `clean` finds them
        return found
    _check_free(out, sorted({*listed.records}))
    return [*found, *_unreferenced(out, _referred_to(out, but=run), {*listed.records})]


def of_output(out: Path, *, trials: bool = False) -> list[Removable]:
    """List the records of an output folder that no run refers to.

    Args:
        trials: Whether to list trainings that were never evaluated on test documents, too. These are trials of `tune`;
            the same `tune` command would use them again, or continue them if it was stopped.

    Raises:
        EnvironmentProblem: A record is under way, or it is unknown which records a run refers to.
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
    """Delete folders, each atomically, and return how many bytes they held.

    Raises:
        EnvironmentProblem: A folder cannot be removed; those before it are gone.
    """
    total = 0
    for one in found:
        atomic.remove(one.folder)
        total += one.size_bytes
    return total


def _check_free(out: Path, records: Iterable[str]) -> None:
    if held := [record for record in records if lock.is_held(out / "records" / record)]:
        raise EnvironmentProblem(
            f"Records can be removed while no process works on them, but {held[0]} in {str(out)!r} is under way. Stop "
            f"it, or wait until it is done; `adaptive-bench status` shows it."
        )


def _records(out: Path) -> Iterator[tuple[str, list[str]]]:
    """Give each training with its evaluations, by their names below the folder of records."""

    def names(above: Path) -> list[str]:
        if not above.is_dir():
            return []
        with os.scandir(above) as entries:
            return sorted(one.name for one in entries if one.is_dir(follow_symlinks=False) and one.name[0] != ".")

    for training in names(out / "records"):
        yield training, [f"{training}/eval/{name}" for name in names(out / "records" / training / "eval")]


def _is_trial(out: Path, evaluations: Collection[str]) -> bool:
    """Whether a training is only a trial: it was evaluated on validation documents alone, or not at all (a stopped
    study may have trained it without having evaluated it yet). Trainings that a run refers to are kept in any case.
    """
    said = [_said(out, record) for record in evaluations]
    return {about.get("split", "test") for about in said if about} <= {"validation"}


def _said(out: Path, record: str) -> dict[str, object]:
    return Record(out / "records" / record).read("config") or {}


def _referred_to(out: Path, but: Path | None = None) -> set[str]:
    """Return the records that the runs of an output folder refer to.

    Args:
        but: A run to leave out.

    Raises:
        EnvironmentProblem: It is unknown which records a run refers to.
    """
    home, found = out / "runs", set[str]()
    for run in sorted(home.iterdir()) if home.is_dir() else ():
        if run.is_symlink() and not run.exists():
            raise EnvironmentProblem(
                f"Records that a run refers to are kept, but {str(run)!r} is a link that leads nowhere. Put back the "
                f"run it led to, or remove the link if the records of that run may be deleted."
            )
        if not is_run(run) or (but is not None and run.resolve() == but.resolve()):
            continue
        try:
            listed, why = manifest.read(run), "it has no manifest.json."
        except AdaptiveBenchError as error:
            listed, why = None, message_of(error)
        if listed is None:
            raise EnvironmentProblem(
                f"Records that a run refers to are kept, but those of {run_name(run)!r} are not known: {why} Give the "
                f"run's command again, which lists them anew, or remove the run with `adaptive-bench rm`."
            )
        bases = {one.base for one in listed.trainings if one.base is not None}
        found |= {*listed.records, *(one.training for one in listed.evaluations), *bases}
    return found


def _unreferenced(out: Path, kept: set[str], asked: Collection[str]) -> Iterator[Removable]:
    """List those of the `asked` records that may be deleted; a training is deleted with all its evaluations or not at
    all.
    """
    records = dict(_records(out))
    staying = {
        training
        for training, evaluations in records.items()
        if any(record in kept or record not in asked for record in (training, *evaluations))
    }
    waiting = list(staying)
    while waiting:  # a training that stays keeps the training it starts from
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
    """Return the bytes of all files below a folder; a link counts as itself, not as its target."""
    return sum(Path(place, name).lstat().st_size for place, _, names in os.walk(folder) for name in names)
