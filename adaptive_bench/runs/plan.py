"""The plan of a run: which trainings and which sweeps it consists of, and where each is on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.evaluation.lookup import expand_tasks, find_task
from adaptive_bench.evaluation.matching import Point
from adaptive_bench.evaluation.record import Evaluation
from adaptive_bench.evaluation.sweep import HasMaximum, first_savings, sweep
from adaptive_bench.evaluation.time_axis import TimeCurve, TimeCurves
from adaptive_bench.method import method_class, starting_spec, training_spec
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs import timing_records
from adaptive_bench.runs.backbones import find_backbone
from adaptive_bench.runs.keys import SCHEMA, code_digest, examples_fingerprint, files_fingerprint, key_of
from adaptive_bench.runs.records import Record, SweepRecord
from adaptive_bench.runs.training_text import draw_calibration, draw_training, training_tasks
from adaptive_bench.spec import MethodSpec
from adaptive_bench.task import Task


@dataclass(frozen=True)
class Cell:
    """One training: a method spec as it is trained, and a seed. Specs that train alike share it.

    Attributes:
        content: Everything the result depends on; its hash is the key.
        folder: Where its record is.
        base: The training whose backbone this one starts from; `None` is the pretrained backbone.
    """

    spec: MethodSpec
    seed: int
    content: dict[str, Any]
    folder: Path
    base: Cell | None = None

    def __str__(self) -> str:
        return f"train {self.spec}, seed {self.seed}"

    @property
    def record(self) -> Record:
        """State and log."""
        return Record(self.folder)

    @property
    def checkpoint(self) -> Path:
        """The trained model; the folder exists only when the training is complete."""
        return self.folder / "checkpoint"

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train."""
        return self.checkpoint.is_dir()


@dataclass(frozen=True)
class _DialEnd:
    max_saved_tokens: float


class _NotMeasured(Exception):
    """A point is not on disk."""


@dataclass(frozen=True)
class Sweep:
    """One method spec and seed on one task, over the range of the dial.

    Attributes:
        metric: The headline metric, which the points are judged by.
        levels: Savings to match at.
        cell: The training it evaluates.
        content: Everything its points depend on; its hash is the key. Levels and axis only say how far to go.
        folder: Where its record is, inside the folder of the training.
        curves: Saved time of the spec by setting, where it was timed.
    """

    spec: MethodSpec
    task: str
    metric: str
    levels: tuple[float, ...]
    cell: Cell
    config: RunConfig
    content: dict[str, Any]
    folder: Path
    curves: Mapping[str, TimeCurve] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"evaluate {self.spec} on {self.task}, seed {self.cell.seed}"

    @property
    def record(self) -> SweepRecord:
        """State, log and points."""
        return SweepRecord(self.folder)

    @property
    def matched_curve(self) -> TimeCurve | None:
        """The timing the run is matched on, if it is matched on time."""
        return next(iter(self.curves.values())) if self.config.match_on == "time" else None

    def first_savings(self, method: HasMaximum) -> list[float]:
        """Shares of saved tokens that are measured in any case."""
        return first_savings(method, self.levels, self.config.evaluation)

    def walk(self, measure: Callable[[float], Evaluation], method: HasMaximum) -> dict[float, Evaluation]:
        """Measure the first savings, then further ones until every level is reached or the dial ends."""
        measured: dict[float, Evaluation] = {}

        def point(saving: float) -> Point:
            measured[saving] = measure(saving)
            return measured[saving].point(self.metric, self.matched_curve)

        sweep(point, method, self.levels, self.config.match_on, self.config.evaluation)
        return measured

    def finished(self) -> dict[float, Evaluation] | None:
        """Every point the walk asks for, if all of them are on disk; else `None`."""
        end = self.record.max_saved_tokens

        def read(saving: float) -> Evaluation:
            if (evaluation := self.record.point(saving)) is None:
                raise _NotMeasured
            return evaluation

        try:
            return None if end is None else self.walk(read, _DialEnd(end))
        except _NotMeasured:
            return None

    def points_left(self) -> int:
        """Points of the first grid that are not on disk; at least 1 unless the sweep is finished."""
        if self.finished() is not None:
            return 0
        end = self.record.max_saved_tokens
        savings = self.first_savings(_DialEnd(1.0 if end is None else end))
        return max(1, sum(self.record.point(saving) is None for saving in savings))


@dataclass(frozen=True)
class Plan:
    """Everything a run consists of, in the order it is carried out."""

    config: RunConfig
    cells: tuple[Cell, ...]
    sweeps: tuple[Sweep, ...]


def plan(config: RunConfig, reporter: Reporter | None = None) -> Plan:
    """Work out the plan of a run. Nothing is loaded but text, nothing is written.

    Raises:
        UsageError: Unknown method, parameter or task, nothing to train on, or no timing to match on.
        EnvironmentProblem: Model or data cannot be reached.
    """
    config = _without_groups(config)
    specs = [MethodSpec.parse(text) for text in config.methods]
    trained = [training_spec(spec) for spec in specs]
    tasks = [find_task(name) for name in config.tasks]
    backbone = find_backbone(config.model)
    curves = _curves(config, backbone.fingerprint)
    recipe = config.train.model_dump(mode="json", exclude={"checkpoint_every", "method_learning_rates"})
    rates = config.train.method_learning_rates
    for name in rates:
        method_class(MethodSpec(name))
    measuring = config.evaluation.model_dump(mode="json", exclude={"grid"})
    about_tasks = [
        {
            "task": task.name,
            "task_code": files_fingerprint(_definition(task)),
            "local_data": _local_data(task, config.data_dir),
        }
        for task in tasks
    ]
    cells: dict[Path, Cell] = {}
    sweeps = []
    for number, seed in enumerate(config.seeds):
        text = draw_training(config, seed, reporter if reporter and not number else SilentReporter())
        shared = {
            "schema": SCHEMA,
            "backbone": backbone.fingerprint,
            "data": {
                "tasks": [task.name for task in training_tasks(config)],
                "sha256": examples_fingerprint(text),
            },
            "recipe": recipe,
            "seed": seed,
        }
        calibration = examples_fingerprint(draw_calibration(config, seed))
        for spec, as_trained in zip(specs, trained, strict=True):
            cell = _cell(as_trained, seed, shared, rates, config.out / "records", cells)
            folder = cell.folder
            about_method = {
                "cell": folder.name,
                "method": str(spec),
                "code": code_digest(spec, work="evaluation"),
                "calibration": calibration,
            }
            for task, about_task in zip(tasks, about_tasks, strict=True):
                measured = measuring | about_method | about_task
                sweep_folder = folder / "eval" / f"{task.name.replace('/', '_')}-{key_of(measured)}"
                levels = config.levels or task.levels
                sweeps.append(
                    Sweep(
                        spec,
                        task.name,
                        task.metrics[0],
                        levels,
                        cell,
                        config,
                        measured,
                        sweep_folder,
                        {setting: by_spec[str(spec)] for setting, by_spec in curves.items() if str(spec) in by_spec},
                    )
                )
    return Plan(config, tuple(cells.values()), tuple(sweeps))


def _without_groups(config: RunConfig) -> RunConfig:
    """The config with every group of tasks replaced by its tasks."""
    train_on = None if config.train_on is None else expand_tasks(config.train_on)
    return config.model_copy(update={"tasks": expand_tasks(config.tasks), "train_on": train_on})


def _curves(config: RunConfig, fingerprint: str) -> TimeCurves:
    """Timings of the model; where the run is matched on time, of the one setting that it is matched in."""
    curves = timing_records.find_curves(config.out, fingerprint)
    if config.match_on != "time":
        return curves if config.timing is None else timing_records.choose(curves, config.timing)
    chosen = timing_records.choose(curves, config.timing) if curves else curves
    setting = timing_records.matching_setting(chosen, config.methods, config.model, config.out)
    return {setting: chosen[setting]}


def _cell(
    spec: MethodSpec,
    seed: int,
    shared: dict[str, Any],
    rates: Mapping[str, float],
    records: Path,
    cells: dict[Path, Cell],
) -> Cell:
    """The cell of a spec as trained, and before it in `cells` the one it starts from."""
    content = shared | {
        "method": str(spec),
        "code": code_digest(spec, work="training"),
        "method_learning_rate": rates.get(spec.name),
    }
    start = starting_spec(spec)
    base = None if start is None else _cell(start, seed, shared, rates, records, cells)
    if base is not None:
        content["base"] = base.folder.name
    folder = records / key_of(content)
    return cells.setdefault(folder, Cell(spec, seed, content, folder, base))


def _local_data(task: Task, data_dir: Path | None) -> str | None:
    """What stands for the local files a task reads: the digest of their content, or their place if unknown."""
    if data_dir is None or task.data_folders == ():
        return None
    if task.data_folders is None:
        return str(data_dir.resolve())
    files = [file for name in task.data_folders for file in (data_dir / name).rglob("*") if file.is_file()]
    return files_fingerprint(files) if files else None


def _definition(task: Task) -> list[Path]:
    """The files that say what a task asks and how it is scored."""
    return [*(file for pattern in ("*.yaml", "*.py") for file in task.folder.glob(pattern)), *task.other_files]
