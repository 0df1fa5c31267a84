"""What the records of an output folder say of themselves: which work is done, running, stopped or failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem, message_of
from adaptive_bench.runs import attempts
from adaptive_bench.runs.records import Record, SweepRecord


@dataclass(frozen=True)
class Piece:
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


def pieces(out: Path) -> Iterator[Piece]:
    """Every training and sweep in an output folder, each training before its sweeps; no plan is needed."""
    for cell in sorted(path for path in (out / "records").glob("*") if path.is_dir()):
        training = _piece(Record(cell), None)
        yield training
        for folder in sorted(path for path in (cell / "eval").glob("*") if path.is_dir()):
            yield _piece(SweepRecord(folder), training)


def _piece(record: Record, training: Piece | None) -> Piece:
    try:
        return _described(record, training)
    except EnvironmentProblem as error:  # of a newer version, or not to be read
        work = "?" if training else "train"
        seed = None if training is None else training.seed
        return Piece(work, "?", seed, "damaged", "", "", message_of(error), record.folder)


def _described(record: Record, training: Piece | None) -> Piece:
    about, status = record.read("config.json") or {}, record.read("status.json") or {}
    seed = about.get("seed") if training is None else training.seed
    method, task = str(about.get("method", "?")), str(about.get("task", "?"))
    state, since, reason = (str(status.get(key, "")) for key in ("state", "since", "reason"))
    if state == "running" and not attempts.is_held(record.folder):
        # A process may be killed between its result and its last word.
        state = "done" if (record.folder / "checkpoint").is_dir() else "stopped"
    if damaged := record.damaged():
        state, reason = "damaged", f"{', '.join(damaged)} cannot be read; the command of its run makes it again."
    work = "train" if training is None else task + ("" if "split" not in about else f" ({about['split']})")
    return Piece(work, method, seed, state or "planned", since, _progress(record, about), reason, record.folder)


def _progress(record: Record, about: dict[str, Any]) -> str:
    if isinstance(record, SweepRecord):
        return f"{len(record.savings())} points"
    recipe = about.get("recipe")
    steps = recipe.get("steps", 0) if isinstance(recipe, dict) else "?"
    log = record.folder / "train.jsonl"
    done = sum(1 for _ in log.open("rb")) if log.is_file() else 0
    return f"{done} of {steps} steps"
