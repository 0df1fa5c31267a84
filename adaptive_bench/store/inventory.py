"""Lists what an output folder holds, and which parts of it may be deleted.

Every record says whether its work is done, running, stopped or failed. A run refers to the records in its manifest, to
the training behind each evaluation, and to the training that another training starts from. Nothing that a run refers to
is ever deleted, and nothing is deleted while a process works on the records in question.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, message_of
from adaptive_bench.store import atomic, lock, manifest
from adaptive_bench.store.records import DialEvaluationRecord, Record
from adaptive_bench.store.runs import check_run, is_run, run_name


@dataclass(frozen=True)
class RecordStatus:
    """The status of one training or sweep.

    Attributes:
        work: `train`, or the task that is evaluated.
        state: The state of the record; `stopped` if the record says `running` but no process holds it, `damaged` if the
            record cannot be read.
        since: When the record entered this state.
        progress: How much is done: steps logged, or points measured.
        reason: Why the work failed, or what is damaged.
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
    """A folder that nothing refers to; `what` it holds is for the reader."""

    folder: Path
    what: str
    size_bytes: int


def pieces(out: Path) -> Iterator[RecordStatus]:
    """List every training and sweep in an output folder, each training before its sweeps."""
    training: RecordStatus | None = None
    for record in _records(out):
        found = _piece(out / "records" / record, training if "/" in record else None)
        training = training if "/" in record else found
        yield found


def _piece(folder: Path, training: RecordStatus | None) -> RecordStatus:
    record = DialEvaluationRecord(folder)
    try:
        about, status, state = record.read("config") or {}, record.read("status") or {}, str(record.state)
    except EnvironmentProblem as error:  # it cannot be read, or a newer version wrote it
        work, seed = ("train", None) if training is None else ("?", training.seed)
        return RecordStatus(work, "?", seed, "damaged", "", "", message_of(error), folder)
    if state == "partial" and status.get("state") == "running":
        state = "stopped"
    if training is None:
        steps = about.get("recipe", {}).get("steps", 0)
        done = steps if state == "done" else len(record.losses())
        work, seed, progress = "train", about.get("seed"), f"{done} of {steps} steps"
    else:
        which, points = about.get("split", about.get("variant")), len(record.savings())
        work = str(about.get("task", "?")) + ("" if which is None else f" ({which})")
        seed, progress = training.seed, f"{points} point{'' if points == 1 else 's'}"
    method, since = str(about.get("method", "?")), str(status.get("since", ""))
    return RecordStatus(work, method, seed, state, since, progress, str(status.get("reason", "")), folder)


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
        own = {*manifest.of_run(run).records}
    except EnvironmentProblem:  # its records are not known; `clean` finds them
        return found
    _check_free(out, own)
    records = _records(out)
    # Records that were never this run's stay, even if no run refers to them: `clean` removes those.
    return [*found, *_unreferenced(out, records, {*records} - own | _referred_to(out, but=run))]


def of_output(out: Path, *, trials: bool = False) -> list[Removable]:
    """List the records of an output folder that no run refers to.

    Args:
        trials: Whether to list trainings that were never evaluated on test documents, too. These are trials of `tune`;
            the same `tune` command would use them again, or continue them if it was stopped.

    Raises:
        EnvironmentProblem: A record is under way, or it is unknown which records a run refers to.
    """
    records = _records(out)
    _check_free(out, records)
    # A trial is evaluated on validation documents alone, or not at all yet, if its study was stopped.
    evaluations = {one: said for one in records if "/" in one and (said := _said(out, one))}
    tested = {_training(one) for one, said in evaluations.items() if said.get("split", "test") == "test"}
    tried = {one for one in records if _training(one) not in tested}
    return _unreferenced(out, records, _referred_to(out) | (set() if trials else tried))


def remove(found: Iterable[Removable]) -> None:
    """Delete folders, each atomically.

    Raises:
        EnvironmentProblem: A folder cannot be removed; those before it are gone.
    """
    for one in found:
        atomic.remove(one.folder)


def _check_free(out: Path, records: Iterable[str]) -> None:
    if held := [record for record in sorted(records) if lock.is_held(out / "records" / record)]:
        raise EnvironmentProblem(
            f"Records can be removed while no process works on them, but {held[0]} in {str(out)!r} is under way. Stop "
            f"it, or wait until it is done; `adaptive-bench status` shows it."
        )


def _records(out: Path) -> list[str]:
    """List the records by their names below the folder of records, each training before its evaluations."""
    home = out / "records"
    names = [one.relative_to(home).parts for form in ("*", "*/eval/*") for one in home.glob(form) if one.is_dir()]
    return ["/".join(parts) for parts in sorted(names) if not any(part.startswith(".") for part in parts)]


def _training(record: str) -> str:
    return record.partition("/")[0]


def _said(out: Path, record: str) -> dict[str, Any]:
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
        # A link that leads nowhere may be a run on a disk that is not there.
        if not (is_run(run) or run.is_symlink()) or (but is not None and run.resolve() == but.resolve()):
            continue
        try:
            listed = manifest.of_run(run)
        except AdaptiveBenchError as error:
            lost = "Or remove the run with `adaptive-bench rm`."
            if not run.exists():
                lost = f"{str(run)!r} is a link that leads nowhere: bring back what it leads to, or remove the link."
            raise EnvironmentProblem(
                f"Records that a run refers to are kept, but those of {run_name(run)!r} are not known: "
                f"{message_of(error)} {lost}"
            ) from error
        found |= {*listed.records}
    return found


def _unreferenced(out: Path, records: Sequence[str], kept: set[str]) -> list[Removable]:
    """List the records that are not kept; a training is deleted with all its evaluations or not at all."""
    staying, gone, waiting = set[str](), list[Removable](), [_training(one) for one in records if one in kept]
    while waiting:  # a training that stays keeps the training it starts from
        if (training := waiting.pop()) not in staying:
            staying.add(training)
            waiting += [base] if (base := _said(out, training).get("base")) else []
    for record in records:
        # Of a training that stays, evaluations go; any other goes as a whole.
        if record not in kept and ("/" in record) == (_training(record) in staying):
            folder, said = out / "records" / record, _said(out, record)
            what = " on ".join(str(said[key]) for key in ("method", "task") if key in said)
            gone.append(Removable(folder, what, _size(folder)))
    return gone


def _size(folder: Path) -> int:
    """Return the bytes of all files below a folder; a link counts as itself, not as its target."""
    return sum(Path(place, name).lstat().st_size for place, _, names in os.walk(folder) for name in names)
