"""What the records of an output folder say of themselves: which work is done, running, stopped or failed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, message_of
from adaptive_bench.store import manifest
from adaptive_bench.store.records import FILE, DialEvaluationRecord
from adaptive_bench.store.runs import run_folders


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


def pieces(out: Path) -> Iterator[RecordStatus]:
    """Every training and sweep in an output folder, each training before its sweeps, then those that a run
    ended with and that are not there; no plan is needed.
    """
    home = out / "records"
    for cell in _folders(home):
        training = _piece(cell, None)
        yield training
        for folder in _folders(cell / "eval"):
            yield _piece(folder, training)
    for record, run in _finished(out).items():
        training_of, _, sweep = record.partition("/")
        if not (home / record).is_dir() and (not sweep or (home / training_of).is_dir()):
            reason = f"The record is missing, with which {run} ended; the command of that run makes it again."
            yield RecordStatus("?" if sweep else "train", "?", None, "damaged", "", "", reason, home / record)


def _finished(out: Path) -> dict[str, str]:
    """By record of a finished evaluation, or of its training, the name of a run that lists it."""
    found: dict[str, str] = {}
    for folder in run_folders(out / "runs"):
        with suppress(AdaptiveBenchError):  # `show` says it
            listed = manifest.read(folder)
            for one in () if listed is None else listed.evaluations:
                found |= dict.fromkeys((one.training, one.record) if one.asked else (), folder.name)
    return found


def _folders(above: Path) -> list[Path]:
    if not above.is_dir():
        return []
    with os.scandir(above) as entries:
        return [above / name for name in sorted(entry.name for entry in entries if entry.is_dir())]


def _piece(folder: Path, training: RecordStatus | None) -> RecordStatus:
    try:
        return _described(folder, training)
    except EnvironmentProblem as error:  # of a newer version, or not to be read
        work = "?" if training else "train"
        seed = None if training is None else training.seed
        return RecordStatus(work, "?", seed, "damaged", "", "", message_of(error), folder)


def _described(folder: Path, training: RecordStatus | None) -> RecordStatus:
    record = DialEvaluationRecord(folder)
    about, status = record.read("config") or {}, record.read("status") or {}
    seed = about.get("seed") if training is None else training.seed
    method, task = str(about.get("method", "?")), str(about.get("task", "?"))
    state, reason = str(record.state), str(status.get("reason", ""))
    if record.is_damaged:
        state, reason = "damaged", f"{FILE} cannot be read; the command of its run makes it again."
    elif state == "partial" and status.get("state") == "running":
        state = "stopped"
    which = about.get("split", about.get("variant"))
    work = "train" if training is None else task + ("" if which is None else f" ({which})")
    points = len(record.savings())
    progress = _steps(folder, about, state) if training is None else f"{points} point{'' if points == 1 else 's'}"
    return RecordStatus(work, method, seed, state, str(status.get("since", "")), progress, reason, folder)


def _steps(folder: Path, about: dict[str, Any], state: str) -> str:
    recipe = about.get("recipe")
    steps = recipe.get("steps", 0) if isinstance(recipe, dict) else "?"
    if state == "done":
        return f"{steps} of {steps} steps"
    log = folder / "train.jsonl"
    done = sum(1 for _ in log.open("rb")) if log.is_file() else 0
    return f"{done} of {steps} steps"
