"""The units of work of a run: trainings, evaluations at dial values, and the timings that belong to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.evaluation.sweep import sweep
from adaptive_bench.progress import Reporter
from adaptive_bench.source import FLOORS
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import timings
from adaptive_bench.store.evaluations import Evaluation, Point, saving_name
from adaptive_bench.store.manifest import Variant, target_text
from adaptive_bench.store.records import CHECKPOINT, DialEvaluationRecord, Record
from adaptive_bench.store.timings import TimeCurve, TimeCurves
from adaptive_bench.tables.points import point_of
from adaptive_bench.task import DocumentSplit

_VERSIONS = ("torch", "transformers", "python")  # of this package `code` says what matters


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


class _NotMeasured(Exception):
    """A point is not on disk."""


@dataclass(frozen=True)
class DialEvaluation:
    """One method spec and seed on one task, over the range of the dial.

    Attributes:
        metric: The headline metric, which the points are judged by.
        levels: Savings to match at: those of its training.
        training: The training it evaluates.
        content: Everything its points depend on; its hash is the key. Levels and axis only say how far to go.
        folder: Where its record is, inside the folder of the training.
        curves: Saved time of the spec by setting, where it was timed.
        split: Documents it asks: those of the test, or validation documents that choices are made on.
        variant: `shuffled` where tokens get the decisions of others (`model.interventions`), else empty.
        own: Of a control the evaluation of the method itself, at whose dial values it is measured.
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

    def walk(
        self,
        measure: Callable[[float], Evaluation],
        probe: Callable[[float], Mapping[str, float | None]],
        end: float,
    ) -> dict[float, Evaluation] | None:
        """Measure where the levels are; of a control where its method was measured. `None` while that is not known.

        Args:
            measure: Evaluates where a share of saved tokens is asked for.
            probe: What is saved there of held-out text, by axis; nothing without such text.
            end: Largest share of saved tokens.
        """
        measured: dict[float, Evaluation] = {}
        if self.variant:
            followed = None if self.own is None else self.own.finished()
            return None if followed is None else {saving: measure(saving) for saving in followed}

        def point(saving: float) -> Point:
            measured[saving] = measure(saving)
            return point_of(measured[saving], self.metric, self.matched_curve)

        def probed(saving: float) -> float | None:
            if self.config.match_on == "claimed":
                return saving
            saved = probe(saving)
            return saved.get(self.config.match_on, saved.get("net"))

        matched = saving_name(self.config.match_on, self.config.match_phase)
        sweep(point, probed, self.levels, matched, end, self.config.evaluation.closeness)
        return dict(sorted(measured.items()))

    def finished(self) -> dict[float, Evaluation] | None:
        """Every point the walk asks for, if all of them are on disk; else `None`. A control follows its method: it has
        none before the method has all.
        """
        if (end := self.record.max_saved_tokens) is None:
            return None

        def read(saving: float) -> Evaluation:
            if (evaluation := self.record.point(saving)) is None:
                raise _NotMeasured
            return evaluation

        def probed(saving: float) -> Mapping[str, float | None]:
            if (saved := self.record.probe(saving)) is None:
                raise _NotMeasured
            return saved

        try:
            return self.walk(read, probed, end)
        except _NotMeasured:
            return None

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing left to measure. The disk is asked until it says so."""
        if "_complete" not in self.__dict__ and self.finished() is not None:
            self.__dict__["_complete"] = True
        return "_complete" in self.__dict__

    def points_left(self, end: float = 1.0) -> int:
        """Points that are likely to be left; at least 1 unless the sweep is finished.

        Args:
            end: Largest share of saved tokens, where the record does not know it yet.
        """
        if self.is_complete:
            return 0
        known = self.record.max_saved_tokens
        expected = expected_points(self.levels, end if known is None else known)
        return max(1, expected - len(self.record.savings()))


def expected_points(levels: Sequence[float], end: float) -> int:
    """Measurements that some levels are likely to take, where a dial goes so far: two each, one at nothing saved."""
    return sum(2 if level > 0 else 1 for level in levels) if end > 0 else 1


def timed(config: RunConfig, sweeps: Sequence[DialEvaluation], reporter: Reporter) -> list[DialEvaluation]:
    """The same sweeps with their curves: in every setting, or in the one that the run is matched in on time. A timing
    that does not belong to them is left out, and the reporter is told.

    Raises:
        UsageError: The run is matched on time, and there is no one setting that every method was timed in.
    """
    if config.evaluation.quantize != "none":  # timings are of the weights as they were trained
        return list(sweeps)
    curves = {
        model: _curves(config, model, sweeps, reporter)
        for model in dict.fromkeys(str(sweep.training.content.get("backbone")) for sweep in sweeps)
    }
    found = []
    for one in sweeps:
        of_model = curves[str(one.training.content.get("backbone"))]
        spec = str(one.spec)
        known_curves = {name: known[spec] for name, known in of_model.items() if spec in known}
        own = None if one.own is None else replace(one.own, curves=known_curves)
        found.append(replace(one, curves=known_curves, own=own))
    return found


def _curves(config: RunConfig, model: str, sweeps: Sequence[DialEvaluation], reporter: Reporter) -> TimeCurves:
    left_out: dict[tuple[str, str], str] = {}

    def fits(record: Mapping[str, Any]) -> bool:
        ours = [sweep for sweep in sweeps if str(sweep.spec) == record["method"]]
        why = _other(record, ours) if ours else None
        if why is not None:
            left_out[timings.label(record["setting"]), record["method"]] = why
        return why is None

    curves = timings.find_curves(config.out, model, fits)
    missed = {(method, why) for (setting, method), why in left_out.items() if method not in curves.get(setting, ())}
    if missed:
        told = ", ".join(f"{method} (other {why})" for method, why in sorted(missed))
        reporter.line(f"Timings that are not of this run are not used: {told}. Give `adaptive-bench time` again.")
    if config.match_on != "time":
        return curves if config.timing is None else timings.choose(curves, config.timing)
    chosen = timings.choose(curves, config.timing) if curves else curves
    setting = timings.matching_setting(chosen, config.methods, config.model, config.out)
    return {setting: chosen[setting]}


def _other(record: Mapping[str, Any], sweeps: Sequence[DialEvaluation]) -> str | None:
    """What a timing was made with that is not what sweeps of its method are, if anything."""
    code, measured = record.get("code"), sweeps[0].content.get("code")
    if code is not None and measured is not None:
        wanted = {name: value for name, value in measured.items() if name != "evaluation"}
        if code != wanted | {"timing": FLOORS["timing"]}:
            return "code"
    kind, _, name = str(record.get("weights", "")).partition(" ")
    if kind == "checkpoint" and name.partition(",")[0] not in {sweep.training.folder.name for sweep in sweeps}:
        return "weights"
    if (versions := record.get("versions")) is not None:
        known = [about for sweep in sweeps if (about := sweep.record.read("env")) is not None]
        known = known or [{"python": python_version()} | {name: version(name) for name in ("torch", "transformers")}]
        if not any(all(versions.get(name) == about.get(name) for name in _VERSIONS) for about in known):
            return "versions"
    return None
