"""The pieces a run consists of: trainings and evaluations of a method's dial on a task, each with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.evaluation.sweep import HasMaximum, first_savings, sweep
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluations import Evaluation
from adaptive_bench.store.manifest import Variant, target_text
from adaptive_bench.store.records import CHECKPOINT, DialEvaluationRecord, Record
from adaptive_bench.store.savings import Point, saving_name
from adaptive_bench.store.time_curves import TimeCurve
from adaptive_bench.tables.points import point_of
from adaptive_bench.task import DocumentSplit


@dataclass(frozen=True)
class TrainingRun:
    """One training: a method spec as it is trained, and a seed. Specs that train alike share it.

    Attributes:
        content: Everything the result depends on; its hash is the key.
        folder: Where its record is.
        base: The training whose backbone this one starts from; `None` is the pretrained backbone.
        target: Saving it is trained towards; `None` for a spec that trains towards none.
        has_single_target: Whether it is the only target of its spec.
    """

    spec: MethodSpec
    seed: int
    content: dict[str, Any]
    folder: Path
    base: TrainingRun | None = None
    target: float | None = None
    has_single_target: bool = True

    def __str__(self) -> str:
        return f"train {self.spec}{self.about_target}, seed {self.seed}"

    @property
    def about_target(self) -> str:
        """The target, where a reader needs it to tell trainings apart."""
        return target_text(self.target, self.has_single_target)

    @property
    def chain(self) -> tuple[TrainingRun, ...]:
        """The training, what it starts from, and so on."""
        return (self,) if self.base is None else (self, *self.base.chain)

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole training."""
        return int(self.content["recipe"]["steps"])

    @property
    def record(self) -> Record:
        """State and log."""
        return Record(self.folder)

    @property
    def checkpoint(self) -> Path:
        """The trained model; the folder exists only when the training is complete."""
        return self.folder / CHECKPOINT

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train: the model is there, and what it cost."""
        return self.checkpoint.is_dir() and self.record.read("cost") is not None


@dataclass(frozen=True)
class _DialEnd:
    max_saving: float


class _NotMeasured(Exception):
    """A point is not on disk."""


@dataclass(frozen=True)
class DialEvaluation:
    """One method spec and seed on one task, over the range of the dial.

    Attributes:
        metric: The headline metric, which the points are judged by.
        levels: Savings to match at.
        training: The training it evaluates.
        content: Everything its points depend on; its hash is the key. Levels and axis only say how far to go.
        folder: Where its record is, inside the folder of the training.
        curves: Saved time of the spec by setting, where it was timed.
        split: Documents it asks: those of the test, or validation documents that choices are made on.
        variant: `shuffled` where tokens get the decisions of others (`model.interventions`), else empty.
        own: Of a control the evaluation of the method itself, at whose dial values it is measured as well; `None` for
            records of earlier versions, whose controls went their own way.
    """

    spec: MethodSpec
    task: str
    metric: str
    levels: tuple[float, ...]
    training: TrainingRun
    config: RunConfig
    content: dict[str, Any]
    folder: Path
    curves: Mapping[str, TimeCurve] = field(default_factory=dict)
    split: DocumentSplit = "test"
    variant: Variant = ""
    own: DialEvaluation | None = None

    def __str__(self) -> str:
        where = self.task if self.split == "test" else f"{self.task} ({self.split})"
        which = f", {self.variant}," if self.variant else ""
        return f"evaluate {self.spec}{self.training.about_target}{which} on {where}, seed {self.training.seed}"

    @property
    def record(self) -> DialEvaluationRecord:
        """State, log and points."""
        return DialEvaluationRecord(self.folder)

    @property
    def matched_curve(self) -> TimeCurve | None:
        """The timing the run is matched on, if it is matched on time."""
        return next(iter(self.curves.values())) if self.config.match_on == "time" else None

    def first_savings(self, method: HasMaximum) -> list[float]:
        """Shares of saved tokens that are measured in any case."""
        first = first_savings(method, self.levels, self.config.evaluation)
        return sorted({*first, *(self._own_points() or ())})

    def _own_points(self) -> Mapping[float, Evaluation] | None:
        """What the method itself measured, by what it was asked for, once all of it is; nothing of one that follows
        none.
        """
        return {} if self.own is None else self.own.finished()

    def walk(
        self, measure: Callable[[float], Evaluation], method: HasMaximum, also: Iterable[float] | None = None
    ) -> dict[float, Evaluation]:
        """Measure the first savings, then further ones until every level is reached or the dial ends.

        Args:
            also: What the method itself was asked for, where that is known; else its record is asked.
        """
        also = self._own_points() or () if also is None else also
        measured: dict[float, Evaluation] = {}

        def point(saving: float) -> Point:
            measured[saving] = measure(saving)
            return point_of(measured[saving], self.metric, self.matched_curve)

        matched = saving_name(self.config.match_on, self.config.match_phase)
        sweep(point, method, self.levels, matched, self.config.evaluation, also)
        return measured

    def finished(self) -> dict[float, Evaluation] | None:
        """Every point the walk asks for, if all of them are on disk; else `None`. A control follows its method: it has
        none before the method has all.
        """
        if (followed := self._own_points()) is None:
            return None
        end = self.record.max_saved_tokens

        def read(saving: float) -> Evaluation:
            if (evaluation := self.record.point(saving)) is None:
                raise _NotMeasured
            return evaluation

        try:
            return None if end is None else self.walk(read, _DialEnd(end), followed)
        except _NotMeasured:
            return None

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing left to measure. The disk is asked until it says so."""
        if "_complete" not in self.__dict__ and self.finished() is not None:
            self.__dict__["_complete"] = True
        return "_complete" in self.__dict__

    def points_left(self, end: float = 1.0) -> int:
        """Points of the first grid that are not on disk; at least 1 unless the sweep is finished.

        Args:
            end: Largest share of saved tokens, where the record does not know it yet.
        """
        if self.is_complete:
            return 0
        known = self.record.max_saved_tokens
        savings = self.first_savings(_DialEnd(end if known is None else known))
        return max(1, sum(self.record.point(saving) is None for saving in savings))
