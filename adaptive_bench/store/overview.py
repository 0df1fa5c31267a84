"""What the records of an output folder say of themselves: which work is done, running, stopped or failed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, message_of
from adaptive_bench.store import lock, manifest, seals
from adaptive_bench.store.files import DOCUMENTS, POINT, Files, missing_halves
from adaptive_bench.store.runs import run_folders


@dataclass(frozen=True)
class RecordStatus:
    """One training or sweep.

    Attributes:
        work: `train`, or the task that is evaluated.
        method: Its spec.
        seed: Of the training.
        state: That of its record; `stopped` for one that says it is running but that no process holds, `damaged` for
            one that cannot be read or lacks a file, and `changed` for one that is not what it was when a run that it
            belongs to ended.
        since: When it got there.
        progress: What is done of it: steps logged, or points measured.
        reason: Why it failed, or what is damaged or changed.
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


_Sealed = Mapping[str, Sequence[tuple[str, seals.Seals]]]  # by record: names of runs, and what they ended with


def pieces(out: Path) -> Iterator[RecordStatus]:
    """Every training and sweep in an output folder, each training before its sweeps; no plan is needed."""
    home = out / "records"
    sealed = _sealed(out)
    cells = _folders(home)
    for cell in cells:
        training = _piece(cell, None, sealed.get(cell.name, ()))
        yield training
        for folder in _folders(cell / "eval"):
            yield _piece(folder, training, sealed.get(f"{cell.name}/eval/{folder.name}", ()))
    gone = sealed.keys() - {cell.name for cell in cells}
    for record in sorted(gone):
        training_of, _, sweep = record.partition("/")
        if not (home / record).is_dir() and (not sweep or training_of not in gone):
            runs = ", ".join(name for name, _ in sealed[record])
            reason = f"The record is missing, with which {runs} ended; the command of that run makes it again."
            yield RecordStatus((sweep and "?") or "train", "?", None, "damaged", "", "", reason, home / record)


def _sealed(out: Path) -> _Sealed:
    found: dict[str, list[tuple[str, seals.Seals]]] = {}
    for folder in run_folders(out / "runs"):
        with suppress(AdaptiveBenchError, ValueError, LookupError, TypeError):  # `show` and `list runs` say it
            known = manifest.read(folder)
            for record, text in ({} if known is None else known.seals).items():
                found.setdefault(record, []).append((folder.name, seals.from_text(text)))
    return found


def _folders(above: Path) -> list[Path]:
    if not above.is_dir():
        return []
    with os.scandir(above) as entries:
        return [above / name for name in sorted(entry.name for entry in entries if entry.is_dir())]


def _piece(folder: Path, training: RecordStatus | None, sealed: Sequence[tuple[str, seals.Seals]] = ()) -> RecordStatus:
    try:
        return _described(folder, training, sealed)
    except EnvironmentProblem as error:  # of a newer version, or not to be read
        work = "?" if training else "train"
        seed = None if training is None else training.seed
        return RecordStatus(work, "?", seed, "damaged", "", "", message_of(error), folder)


def _described(folder: Path, training: RecordStatus | None, sealed: Sequence[tuple[str, seals.Seals]]) -> RecordStatus:
    files = Files(folder)
    names, damaged = files.names(), files.damaged()
    about, status = files.read("config.json") or {}, files.read("status.json") or {}
    said = about.get("seed")
    seed = (said if type(said) is int else None) if training is None else training.seed
    method, task = str(about.get("method", "?")), str(about.get("task", "?"))
    state, since, reason = (str(status.get(key, "")) for key in ("state", "since", "reason"))
    if state == "running" and not lock.is_held(folder):
        # A process may be killed between its result and its last word.
        state = "done" if (folder / "checkpoint").is_dir() else "stopped"
    if damaged:
        state, reason = "damaged", f"{', '.join(damaged)} cannot be read; the command of its run makes it again."
    elif state == "done" and (halves := missing_halves(names)):
        state, reason = "damaged", f"{', '.join(halves)} is missing; the command of its run makes it again."
    elif state in ("done", ""):
        state, reason = _held_to(files, sealed, state)
    which = about.get("split", about.get("variant"))
    work = "train" if training is None else task + ("" if which is None else f" ({which})")
    progress = _steps(folder, about, state) if training is None else _points(names)
    return RecordStatus(work, method, seed, state or "planned", since, progress, reason, folder)


def _held_to(files: Files, sealed: Sequence[tuple[str, seals.Seals]], state: str) -> tuple[str, str]:
    """State and reason of a record that nobody is at, held to what runs ended with."""
    for run, known in sealed:
        if found := next(seals.broken(files, known), None):
            state = "damaged" if found.how == "is missing" else "changed"
            return state, f"{found.name} {found.how} since {run} ended; the command of that run takes what is there."
    return state, ""


def _points(names: list[str]) -> str:
    known = set(names)
    measured = sum(f"{name.removesuffix('.json')}{DOCUMENTS}" in known for name in known if POINT.fullmatch(name))
    return f"{measured} point{'' if measured == 1 else 's'}"


def _steps(folder: Path, about: dict[str, Any], state: str) -> str:
    recipe = about.get("recipe")
    steps = recipe.get("steps", 0) if isinstance(recipe, dict) else "?"
    if state == "done":
        return f"{steps} of {steps} steps"
    log = folder / "train.jsonl"
    done = sum(1 for _ in log.open("rb")) if log.is_file() else 0
    return f"{done} of {steps} steps"
