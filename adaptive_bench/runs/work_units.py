"""Defines the units of work of a run: trainings and dial sweeps, with the timings that belong to them."""

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
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluation import Evaluation
from adaptive_bench.store.keys import FLOORS
from adaptive_bench.store.manifest import Variant
from adaptive_bench.store.measured import TimeCurve
from adaptive_bench.store.records import (
    CHECKPOINT,
    DialEvaluationRecord,
    Record,
    choose_curves,
    find_curves,
    setting_label,
)
from adaptive_bench.task import DocumentSplit

_VERSIONS = ("torch", "transformers", "python")  # this package is left out, because `code` says what matters of it


@dataclass(frozen=True)
class TrainingRun:
    """One training: a method spec as it is trained, and a seed. Specs that train alike share it.

    Attributes:
        content: Everything the result depends on; its hash is the key.
        folder: Folder of the training's record.
        base: The training whose backbone this one starts from; `None` for the pretrained backbone.
        target: Saving that it is trained towards; `None` for a spec that trains towards none.
        has_single_target: Whether this is the only target of its spec.
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
        """The target as text, if readers need it to tell trainings apart; else an empty text."""
        return "" if self.target is None or self.has_single_target else f" for {100 * self.target:.4g} %"

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
        """The training's record, with its state and log."""
        return Record(self.folder)

    @property
    def checkpoint(self) -> Path:
        """The trained model; the folder exists only when the training is complete."""
        return self.folder / CHECKPOINT

    @property
    def finished(self) -> bool:
        """Whether nothing is left to train: the model and its cost are on disk."""
        return self.checkpoint.is_dir() and self.record.read("cost") is not None


class _NotMeasured(Exception):
    """A point is not on disk."""


@dataclass(frozen=True)
class DialEvaluation:
    """One method spec and seed on one task, over the range of the dial.

    Attributes:
        content: Everything the points depend on; its hash is the key. Levels and axis are not part of it,
            because they only decide which points are measured.
        curves: Saved time of the spec by setting, if it was timed.
        split: Documents that are asked: test documents, or validation documents that choices are made on.
        variant: `shuffled` if tokens get the decisions of other tokens (`model.interventions`), else empty.
        own: For a control, the evaluation of the method itself, at whose dial values the control is measured.
    """

    spec: MethodSpec
    task: str
    metric: str  # the headline metric, by which points are judged
    levels: tuple[float, ...]  # savings to match at: those of the training
    training: TrainingRun  # the training that is evaluated
    config: RunConfig
    content: dict[str, Any]
    folder: Path  # folder of the evaluation's record, inside the folder of the training
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
        """The evaluation's record, with its state, log and points."""
        return DialEvaluationRecord(self.folder)

    def walk(
        self,
        measure: Callable[[float], Evaluation],
        probe: Callable[[float], Mapping[str, float | None]],
        end: float,
    ) -> dict[float, Evaluation] | None:
        """Measure points until the levels are matched; a control is measured where its method was.

        Args:
            measure: Evaluates the task at a requested share of saved tokens, of which `end` is the largest.
            probe: Measures the saving on held-out text at such a share, by axis; empty without such text.

        Returns:
            The points by requested share; `None` for a control whose method is not finished.
        """
        measured: dict[float, Evaluation] = {}
        if self.variant:
            followed = None if self.own is None else self.own.finished()
            return None if followed is None else {saving: measure(saving) for saving in followed}

        def saved(saving: float) -> float | None:
            measured[saving] = measure(saving)
            return measured[saving].saved(self.config.match_on, self.config.match_phase)

        def probed(saving: float) -> float | None:
            # What a dial claims is the share it was asked for.
            if self.config.match_on == "claimed":
                return saving
            found = probe(saving)
            # Probes know neither bytes nor projections; net FLOPs are near enough for where to begin.
            return found.get(self.config.match_on, found.get("net"))

        sweep(saved, probed, self.levels, end, self.config.evaluation.closeness)
        return dict(sorted(measured.items()))

    def finished(self) -> dict[float, Evaluation] | None:
        """All points of the walk if they are on disk, else `None`.

        A control follows its method, so it has no points before its method is finished.
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
            # The same search with results from disk asks for the same points, up to the first that is missing.
            return self.walk(read, probed, end)
        except _NotMeasured:
            return None

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to measure; read from disk until that is so, then remembered."""
        # A `cached_property` would remember that it is not complete, too.
        if "_complete" not in self.__dict__ and self.finished() is not None:
            self.__dict__["_complete"] = True
        return "_complete" in self.__dict__

    def points_left(self, end: float = 1.0) -> int:
        """Number of points that are likely to be left, two for each level above 0; at least 1 unless the sweep is
        finished. `end` is the largest share of saved tokens if the record does not know it yet.
        """
        if self.is_complete:
            return 0
        known = self.record.max_saved_tokens
        saves = (end if known is None else known) > 0
        expected = sum(2 if level > 0 else 1 for level in self.levels) if saves else 1
        return max(1, expected - len(self.record.savings()))


def with_curves(config: RunConfig, sweeps: Sequence[DialEvaluation], reporter: Reporter) -> list[DialEvaluation]:
    """The same sweeps with their time curves in every setting, or in those that the config chooses.

    Timings that do not belong to the sweeps are left out, and the reporter is told.

    Raises:
        UsageError: The config chooses a setting that was not timed.
    """
    model = next((one.training.content["backbone"] for one in sweeps if "backbone" in one.training.content), None)
    if model is None or config.evaluation.quantize != "none":  # timings are made with the weights as they were trained
        return list(sweeps)
    left_out: dict[tuple[str, str], str] = {}

    def fits(record: Mapping[str, Any]) -> bool:
        ours = [sweep for sweep in sweeps if str(sweep.spec) == record["method"]]
        why = _timing_mismatch(record, ours) if ours else None
        if why is not None:
            left_out[setting_label(record["setting"]), record["method"]] = why
        return why is None

    curves = find_curves(config.out, model, fits)
    # A timing that does not fit is not missed where another one of the same setting does.
    missed = {(method, why) for (setting, method), why in left_out.items() if method not in curves.get(setting, ())}
    if missed:
        told = ", ".join(f"{method} (other {why})" for method, why in sorted(missed))
        reporter.line(f"Timings that do not fit this run are not used: {told}. Give `adaptive-bench time` again.")
    chosen = choose_curves(curves, config.timing)
    return [
        replace(one, curves={name: known[str(one.spec)] for name, known in chosen.items() if str(one.spec) in known})
        for one in sweeps
    ]


def _timing_mismatch(record: Mapping[str, Any], sweeps: Sequence[DialEvaluation]) -> str | None:
    """What a timing has different from the sweeps of its method: `code`, `weights` or `versions`; `None` if it fits."""
    code, measured = record.get("code"), sweeps[0].content.get("code")
    if code is not None and measured is not None:
        # Both are by `code_behind`: only the floor of the work itself differs.
        wanted = {name: value for name, value in measured.items() if name != "evaluation"}
        if code != wanted | {"timing": FLOORS["timing"]}:
            return "code"
    # `checkpoint <name of the record>, seed 1`, or `untrained`, which fits every training.
    kind, _, name = str(record.get("weights", "")).partition(" ")
    if kind == "checkpoint" and name.partition(",")[0] not in {sweep.training.folder.name for sweep in sweeps}:
        return "weights"
    if (versions := record.get("versions")) is not None:
        known = [about for sweep in sweeps if (about := sweep.record.read("env")) is not None]
        # Nothing is measured yet; it will be with what is installed now.
        known = known or [{"python": python_version()} | {name: version(name) for name in ("torch", "transformers")}]
        if not any(all(versions.get(name) == about.get(name) for name in _VERSIONS) for about in known):
            return "versions"
    return None
