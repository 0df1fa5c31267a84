"""How long a plan will take: from records this machine has made before, from a measured pace, or else roughly."""

from __future__ import annotations

import json
import platform
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.progress import duration
from adaptive_bench.runs.cost.pace import Pace
from adaptive_bench.runs.planning.cells import Cell, Sweep
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.records.files import files_of
from adaptive_bench.training import checkpoint
from adaptive_bench.training.loop import RESUME_FOLDER

# With neither: what the nano model takes on a CPU core. An order of magnitude, and said to be no more.
_ROUGH_SEQUENCE_S, _ROUGH_DOCUMENT_S, _ROUGH_DOCUMENTS = 0.01, 0.01, 1000
# A pass over held-out text to set thresholds and one to check them, in training steps: measured on nano.
_CALIBRATION_PASSES = 0.45
# Evaluating with a method takes so much longer than with the plain model: the mean of three methods on nano, whose
# points took from 0.8 to 1.5 times as long.
_METHOD_OVERHEAD = 1.15
# A sweep that is matched on another axis than tokens has to look further: points it adds, on average of many runs.
_EXTRA_POINTS = 1


@dataclass(frozen=True)
class Trait:
    """What is known of a method on this model before it is trained.

    Attributes:
        end: Largest share of saved tokens.
        calibrates: Whether each dial value is calibrated first.
    """

    end: float = 1.0
    calibrates: bool = False


@dataclass(frozen=True)
class Estimate:
    """Seconds of work left, and whether they rest on a guess."""

    seconds: float
    rough: bool = False

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.seconds + other.seconds, self.rough or other.rough)

    def __str__(self) -> str:
        return duration(self.seconds) + (" (rough)" if self.rough else "")


class _Known:
    """Seconds that trainings and evaluations took."""

    def __init__(self) -> None:
        self.sequence_s: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self.document_s: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
        self.documents: dict[str, int] = {}

    def learn(self, folder: Path) -> None:
        """Look at one record."""
        config, timing = files_of(folder).read("config.json") or {}, _read(folder / "timing.json")
        if timing.get("steps"):
            sequences = timing["steps"] * config["recipe"]["batch_size"]
            self.sequence_s[config["backbone"], config["method"]].append(timing["train_s"] / sequences)
        for sweep in map(files_of, folder.glob("eval/*")):
            method = (sweep.read("config.json") or {}).get("method", "")
            for name in sweep.names():
                point = (sweep.read(name) if name[0].isdigit() and name.endswith(".json") else None) or {}
                if point.get("docs"):
                    key = config["backbone"], method, point["task"]
                    self.document_s[key].append(point["wall_s"] / point["docs"])
                    self.documents[point["task"]] = max(point["docs"], self.documents.get(point["task"], 0))


class Estimator:
    """Knows how long trainings and evaluations took in the records of an output folder, on this machine.

    Args:
        out: The folder.
        pace: What was measured just now; records win over it.
        traits: By method spec.
    """

    def __init__(self, out: Path, pace: Pace | None = None, traits: Mapping[str, Trait] | None = None) -> None:
        self._out, self._pace, self._traits = out, pace, traits or {}

    @cached_property
    def _known(self) -> _Known:
        """What the records say; looked at when it is first asked for."""
        known = _Known()
        for folder in (self._out / "records").glob("*"):
            with suppress(
                EnvironmentProblem, LookupError, TypeError, ValueError, AttributeError
            ):  # no estimate is worth an error
                if (files_of(folder).read("env.json") or {}).get("machine") == platform.node():
                    known.learn(folder)
        return known

    def sequence_s(self, cell: Cell) -> tuple[float, bool]:
        """Seconds of training on one sequence, and whether that is a guess."""
        backbone = cell.content["backbone"]
        if known := self._known.sequence_s[backbone, str(cell.spec)]:
            return median(known), False
        if self._pace is not None and cell.spec in self._pace.sequence_s:
            return self._pace.sequence_s[cell.spec], False
        if others := [
            value for (model, _), values in self._known.sequence_s.items() if model == backbone for value in values
        ]:
            return median(others), False
        if self._pace is not None and self._pace.sequence_s:  # of a plugin, which is not timed before
            return median(self._pace.sequence_s.values()), False
        return _ROUGH_SEQUENCE_S, True

    @property
    def alone(self) -> float:
        """Time that work takes while no other process works, as a share of its time while all do."""
        return 1.0 if self._pace is None else 1.0 / self._pace.slower

    def training(self, cell: Cell) -> Estimate:
        """Time of the steps that are left."""
        sequences = steps_left(cell) * cell.content["recipe"]["batch_size"]
        one_s, rough = self.sequence_s(cell)
        return Estimate(sequences * one_s, bool(sequences) and rough)

    def point(self, sweep: Sweep) -> Estimate:
        """Time of one dial value."""
        known = self._known.document_s[sweep.cell.content["backbone"], str(sweep.spec), sweep.task]
        documents = sweep.config.evaluation.limit or self._known.documents.get(sweep.task, _ROUGH_DOCUMENTS)
        if known:
            return Estimate(documents * median(known))
        if self._pace is not None and sweep.task in self._pace.document_s:
            return Estimate(documents * self._pace.document_s[sweep.task] * _METHOD_OVERHEAD)
        backbone = sweep.cell.content["backbone"]
        others = [
            value
            for (model, _, task), values in self._known.document_s.items()
            if (model, task) == (backbone, sweep.task)
            for value in values
        ]
        return Estimate(documents * (median(others) if others else _ROUGH_DOCUMENT_S), not others)

    def calibration(self, sweep: Sweep) -> Estimate:
        """Time to make one dial value ready."""
        if not self._traits.get(str(sweep.spec), Trait()).calibrates:
            return Estimate(0.0)
        one_s, rough = self.sequence_s(sweep.cell)
        length = 1.0 if self._pace is None else self._pace.length(sweep.task)
        return Estimate(_CALIBRATION_PASSES * one_s * length * sweep.config.evaluation.calibration_examples, rough)

    def points_left(self, sweep: Sweep) -> int:
        """Dial values that are left, as far as can be known beforehand."""
        end = self._traits.get(str(sweep.spec), Trait()).end
        return sweep.points_left(end)

    def sweep(self, sweep: Sweep) -> Estimate:
        """Time of the points that are left, with what the sweep may add and with their calibration."""
        points = self.points_left(sweep)
        if not points:
            return Estimate(0.0)
        one = self.point(sweep) + self.calibration(sweep)
        moves = self._traits.get(str(sweep.spec), Trait()).end > 0 and sweep.config.match_on != "tokens"
        return Estimate((points + (_EXTRA_POINTS if moves else 0)) * one.seconds, one.rough)


def steps_left(cell: Cell) -> int:
    """Optimizer steps between the newest checkpoint and the end."""
    if cell.finished:
        return 0
    newest = checkpoint.newest(cell.folder / RESUME_FOLDER)
    return int(cell.content["recipe"]["steps"]) - (checkpoint.steps_done(newest) if newest else 0)


def describe(plan: Plan, estimator: Estimator | None = None) -> list[dict[str, str]]:
    """One line for each training and sweep, and one for the whole."""
    estimator = estimator or Estimator(plan.config.out)
    left: list[tuple[Cell | Sweep, int, str, Estimate]] = []
    untrained = {cell.folder for cell in plan.untrained}
    for cell in plan.cells:
        is_left = cell.folder in untrained
        left.append(
            (cell, steps_left(cell), "steps", estimator.training(cell)) if is_left else (cell, 0, "", Estimate(0.0))
        )
    left += [(sweep, estimator.points_left(sweep), "dial values", estimator.sweep(sweep)) for sweep in plan.sweeps]
    lines = []
    for work, count, unit, estimate in left:
        again = ", failed before" if work.record.state == "failed" else ""
        state = f"{count} {unit} left{again}" if count else "nothing to train" if _untrained(work) else "on disk"
        lines.append({"work": str(work), "state": state, "time": str(estimate) if count else ""})
    total = sum((estimate for *_, estimate in left), Estimate(0.0))
    return [*lines, {"work": "together, one after the other", "state": "", "time": str(total)}]


def total(plan: Plan, estimator: Estimator) -> Estimate:
    """Time of everything that is left, one after the other."""
    parts = [*map(estimator.training, plan.untrained), *map(estimator.sweep, plan.sweeps)]
    return sum(parts, Estimate(0.0))


def _untrained(work: Cell | Sweep) -> bool:
    return isinstance(work, Cell) and not work.content["recipe"]["steps"]


def _read(path: Path) -> dict[str, Any]:
    """A JSON file, empty if it is not there or cannot be read: an estimate is not worth an error."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
