"""How long a plan will take: from records this machine has made before, or else roughly."""

from __future__ import annotations

import json
import platform
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from adaptive_bench.progress import duration
from adaptive_bench.runs.cells import Cell, Sweep
from adaptive_bench.runs.plan import Plan
from adaptive_bench.training import checkpoint
from adaptive_bench.training.loop import RESUME_FOLDER

# Without records: what the nano model takes on a CPU core. An order of magnitude, and said to be no more.
_ROUGH_SEQUENCE_S, _ROUGH_DOCUMENT_S, _ROUGH_DOCUMENTS = 0.01, 0.01, 1000


@dataclass(frozen=True)
class Estimate:
    """Seconds of work left, and whether they rest on a guess."""

    seconds: float
    rough: bool = False

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.seconds + other.seconds, self.rough or other.rough)

    def __str__(self) -> str:
        return duration(self.seconds) + (" (rough)" if self.rough else "")


class Estimator:
    """Knows how long trainings and evaluations took in the records of an output folder, on this machine."""

    def __init__(self, out: Path) -> None:
        self._sequence_s: defaultdict[str, list[float]] = defaultdict(list)
        self._document_s: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._documents: dict[str, int] = {}
        for folder in (out / "records").glob("*"):
            if _read(folder / "env.json").get("machine") == platform.node():
                self._learn(folder, _read(folder / "config.json"))

    def _learn(self, folder: Path, config: dict[str, Any]) -> None:
        timing = _read(folder / "timing.json")
        if timing.get("steps"):
            sequences = timing["steps"] * config["recipe"]["batch_size"]
            self._sequence_s[config["backbone"]].append(timing["train_s"] / sequences)
        for file in folder.glob("eval/*/*.json"):
            point = _read(file)
            if point.get("docs"):
                self._document_s[config["backbone"], point["task"]].append(point["wall_s"] / point["docs"])
                self._documents[point["task"]] = max(point["docs"], self._documents.get(point["task"], 0))

    def training(self, cell: Cell) -> Estimate:
        """Time of the steps that are left."""
        sequences = steps_left(cell) * cell.content["recipe"]["batch_size"]
        known = self._sequence_s[cell.content["backbone"]]
        return Estimate(sequences * (median(known) if known else _ROUGH_SEQUENCE_S), bool(sequences) and not known)

    def point(self, sweep: Sweep) -> Estimate:
        """Time of one dial value."""
        known = self._document_s[sweep.cell.content["backbone"], sweep.task]
        documents = sweep.config.evaluation.limit or self._documents.get(sweep.task, _ROUGH_DOCUMENTS)
        return Estimate(documents * (median(known) if known else _ROUGH_DOCUMENT_S), not known)

    def sweep(self, sweep: Sweep) -> Estimate:
        """Time of the points that are left, as far as they are known beforehand."""
        one, points = self.point(sweep), sweep.points_left()
        return Estimate(points * one.seconds, bool(points) and one.rough)


def steps_left(cell: Cell) -> int:
    """Optimizer steps between the newest checkpoint and the end."""
    if cell.finished:
        return 0
    newest = checkpoint.newest(cell.folder / RESUME_FOLDER)
    return int(cell.content["recipe"]["steps"]) - (checkpoint.steps_done(newest) if newest else 0)


def describe(plan: Plan) -> list[dict[str, str]]:
    """One line for each training and sweep, and one for the whole."""
    estimator = Estimator(plan.config.out)
    left: list[tuple[Cell | Sweep, int, str, Estimate]] = []
    left += [(cell, steps_left(cell), "steps", estimator.training(cell)) for cell in plan.cells]
    left += [(sweep, sweep.points_left(), "dial values", estimator.sweep(sweep)) for sweep in plan.sweeps]
    lines = []
    for work, count, unit, estimate in left:
        again = ", failed before" if work.record.state == "failed" else ""
        state = f"{count} {unit} left{again}" if count else "nothing to train" if _untrained(work) else "on disk"
        lines.append({"work": str(work), "state": state, "time": str(estimate) if count else ""})
    total = sum((estimate for *_, estimate in left), Estimate(0.0))
    return [*lines, {"work": "together, one after the other", "state": "", "time": str(total)}]


def _untrained(work: Cell | Sweep) -> bool:
    return isinstance(work, Cell) and not work.content["recipe"]["steps"]


def _read(path: Path) -> dict[str, Any]:
    """A JSON file, empty if it is not there."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
