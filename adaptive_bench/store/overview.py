"""What the records of an output folder say of themselves: which work is done, running, stopped or failed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem, message_of
from adaptive_bench.store import attempts
from adaptive_bench.store.files import DOCUMENTS, Files


@dataclass(frozen=True)
class RecordStatus:
    """One training or sweep.

    Attributes:
        work: `train`, or the task that is evaluated.
        method: Its spec.
        seed: Of the training.
        state: That of its record; `stopped` for one that says it is running but that no process holds, and
            `damaged` for one that cannot be read.
        since: When it got there.
        progress: What is done of it: steps logged, or points measured.
        reason: Why it failed.
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
    """Every training and sweep in an output folder, each training before its sweeps; no plan is needed."""
    for cell in _folders(out / "records"):
        training = _piece(cell, None)
        yield training
        for folder in _folders(cell / "eval"):
            yield _piece(folder, training)


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
    files = Files(folder)
    names, damaged = files.names(), files.damaged()
    about, status = files.read("config.json") or {}, files.read("status.json") or {}
    seed = about.get("seed") if training is None else training.seed
    method, task = str(about.get("method", "?")), str(about.get("task", "?"))
    state, since, reason = (str(status.get(key, "")) for key in ("state", "since", "reason"))
    if state == "running" and not attempts.is_held(folder):
        # A process may be killed between its result and its last word.
        state = "done" if (folder / "checkpoint").is_dir() else "stopped"
    if damaged:
        state, reason = "damaged", f"{', '.join(damaged)} cannot be read; the command of its run makes it again."
    work = "train" if training is None else task + ("" if "split" not in about else f" ({about['split']})")
    progress = _steps(folder, about, state) if training is None else _points(names)
    return RecordStatus(work, method, seed, state or "planned", since, progress, reason, folder)


def _points(names: list[str]) -> str:
    known = set(names)
    asked = (name.removesuffix(DOCUMENTS) for name in names if name.endswith(DOCUMENTS))
    measured = sum(f"{saving}.json" in known for saving in asked)
    return f"{measured} point{'' if measured == 1 else 's'}"


def _steps(folder: Path, about: dict[str, Any], state: str) -> str:
    recipe = about.get("recipe")
    steps = recipe.get("steps", 0) if isinstance(recipe, dict) else "?"
    if state == "done":
        return f"{steps} of {steps} steps"
    log = folder / "train.jsonl"
    done = sum(1 for _ in log.open("rb")) if log.is_file() else 0
    return f"{done} of {steps} steps"
