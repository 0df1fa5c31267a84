"""Estimates how long a plan will take.

An estimate rests on the mean times in earlier records of this machine, else on the plan's FLOPs at this machine's rate,
else on a rough guess. It is an order of magnitude, not a promise; the run corrects it as it goes.
"""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from transformers import PretrainedConfig

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.progress import RunningTask, duration
from adaptive_bench.runs.backbone_source import find_device
from adaptive_bench.runs.budget import Prices, Workload
from adaptive_bench.runs.precision import few_layers, seconds, with_values
from adaptive_bench.runs.run_plan import Plan
from adaptive_bench.runs.work_units import DialEvaluation, TrainingRun
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.records import Record
from adaptive_bench.training import resume
from adaptive_bench.training.loop import RESUME_FOLDER

_TOKENS, _LAYERS, _WORDS = 256, 4, 8192  # at most, of the text and of the model that rates are measured with
# Without records and forecast: what the nano model takes on a CPU core.
_ROUGH_SEQUENCE_S, _ROUGH_DOCUMENT_S, _ROUGH_DOCUMENTS = 0.01, 0.01, 1000
# Time to set thresholds in one pass over a text and to check them in another, as a share of the time to train on that
# text; measured on nano.
CALIBRATION_PASSES = 0.45
CALIBRATIONS = 2  # for each measured point, because some dial values are only probed on held-out text


class Rates(NamedTuple):
    """FLOPs a second in training, in reading a text, and in writing one more token of every text in a batch."""

    training: float
    reading: float
    writing: float


_rates: dict[tuple[Any, ...], Rates] = {}  # measured once, so that repeated forecasts of a run agree


@dataclass(frozen=True)
class Speed:
    """The time that one process is expected to need for each piece of work.

    Attributes:
        sequence_s: Seconds of training on one sequence, by method spec.
        document_s: Seconds of evaluating one document with the dense model, by task.
        documents: Number of documents of each task.
    """

    sequence_s: Mapping[MethodSpec, float] = field(default_factory=dict)
    document_s: Mapping[str, float] = field(default_factory=dict)
    documents: Mapping[str, int] = field(default_factory=dict)


def forecast(work: Workload, trained: Iterable[MethodSpec], jobs: int, task: RunningTask) -> Speed:
    """Forecast how long the work of a run takes on this machine, from its FLOPs.

    Args:
        work: The run's texts on its model.
        trained: Method specs that are trained.
        jobs: Number of processes that will work at once, each with an equal share of the cores.
        task: Advanced by one for the rates, for each training and for the documents.
    """
    recipe, evaluation = work.config.train, work.config.evaluation
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // jobs))
    try:
        device = find_device(work.config.device)
        shape, bf16 = work.prices.empty.config, recipe.precision == "bf16"
        # Few documents make a smaller batch, and a step with fewer rows is hardly shorter.
        rows = min(evaluation.batch_size, evaluation.limit or evaluation.batch_size)
        about = shape.to_json_string(), device, rows, bf16, torch.get_num_threads()
        rates = _rates[about] = _rates.get(about) or measure_rates(shape, device, rows, bf16=bf16)
    finally:
        torch.set_num_threads(threads)
    task.advance(1, of="rate")
    sequence_s: dict[MethodSpec, float] = {}
    for spec in trained:
        sequence_s[spec] = work.training_flops(spec) / rates.training
        task.advance(1, of=f"step of {spec}")
    asked, _ = work.asked
    task.advance(1, of="documents")
    document_s = {
        name: (one.reading / rates.reading + one.writing / rates.writing) / max(1, one.documents)
        for name, one in asked.items()
    }
    return Speed(sequence_s, document_s, {name: one.documents for name, one in asked.items()})


def measure_rates(shape: PretrainedConfig, device: torch.device, rows: int, *, bf16: bool) -> Rates:
    """Time passes of a plain model of this width, with few layers and a small vocabulary.

    Args:
        rows: Number of texts written at once.
        bf16: Whether training computes in bf16.
    """
    empty = few_layers(shape, _LAYERS, _WORDS)
    prices, model = Prices(empty), with_values(empty, device)
    length = min(_TOKENS, prices.context)
    reading = (flops := prices.forward(length, length)) / seconds(model, (1, length), bf16=False)
    training = 3 * flops / seconds(model, (1, length), bf16=bf16, backward=True)  # a backward pass costs two forward
    return Rates(training, reading, rows * prices.forward(1, 1) / seconds(model, (rows, 1), bf16=False))


_UNREADABLE = (ArithmeticError, AttributeError, EnvironmentProblem, LookupError, OSError, TypeError, ValueError)


@dataclass(frozen=True)
class Trait:
    """What is known of a method on this model before it is trained.

    Attributes:
        end: Largest share of tokens that the dial can save.
        calibrates: Whether each dial value has to be calibrated.
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

    def __mul__(self, times: float) -> Estimate:
        return Estimate(self.seconds * times, self.rough and times > 0)

    def __str__(self) -> str:
        return duration(self.seconds) + (" (rough)" if self.rough else "")


class Estimator:
    """Estimates trainings and evaluations by the records that this machine has made in an output folder.

    Args:
        out: The output folder.
        forecast: Expected times; records of the same work take precedence.
        traits: What is known of each method, by method spec.
    """

    def __init__(self, out: Path, forecast: Speed | None = None, traits: Mapping[str, Trait] | None = None) -> None:
        self._out, self._forecast, self._traits = out, forecast or Speed(), traits or {}

    def training(self, training: TrainingRun) -> Estimate:
        """Time of a training's remaining steps."""
        return self._sequence(training) * (steps_left(training) * training.content["recipe"]["batch_size"])

    def point(self, sweep: DialEvaluation) -> Estimate:
        """Time of an evaluation at one dial value."""
        backbone, spec, task, recipe = _backbone(sweep.training), sweep.spec, sweep.task, sweep.config.evaluation
        timed = self._forecast.document_s.get(task)
        one = self._first(("document", backbone, str(spec), task), timed, ("document", backbone, task))
        most = self._forecast.documents.get(task) or self._means.get(("documents", task), _ROUGH_DOCUMENTS)
        return (one or Estimate(_ROUGH_DOCUMENT_S, rough=True)) * (recipe.limit or most)

    def calibration(self, sweep: DialEvaluation) -> Estimate:
        """Time to calibrate one dial value."""
        passes = CALIBRATION_PASSES if self._traits.get(str(sweep.spec), Trait()).calibrates else 0.0
        passes += CALIBRATION_PASSES / 2 if sweep.variant else 0.0  # one more pass collects decisions to shuffle
        return self._sequence(sweep.training) * (passes * sweep.config.evaluation.calibration_examples)

    def points_left(self, sweep: DialEvaluation) -> int:
        """Number of dial values left, as far as that is known beforehand."""
        return sweep.points_left(self._traits.get(str(sweep.spec), Trait()).end)

    def sweep(self, sweep: DialEvaluation) -> Estimate:
        """Time of a sweep's remaining points."""
        points = self.points_left(sweep)
        each = self.point(sweep) + self.calibration(sweep) * CALIBRATIONS
        return each * points if points else Estimate(0.0)

    def _sequence(self, training: TrainingRun) -> Estimate:
        """Time of training on one sequence."""
        timed = self._forecast.sequence_s
        # Plugin code does not run before the work starts, so plugins' trainings count as the mean of the others.
        like = timed.get(training.spec, fmean(timed.values()) if timed else None)
        found = self._first(
            ("sequence", _backbone(training), str(training.spec)), like, ("sequence", _backbone(training))
        )
        return found or Estimate(_ROUGH_SEQUENCE_S, rough=True)

    def _first(self, own: tuple[str, ...], timed: float | None, others: tuple[str, ...]) -> Estimate | None:
        """The mean in records of the same work, else the forecast, else the mean in records of other methods."""
        seconds = self._means.get(own, self._means.get(others) if timed is None else timed)
        return None if seconds is None else Estimate(seconds)

    @cached_property
    def _means(self) -> dict[tuple[str, ...], float]:
        """Means over the records: seconds a sequence, seconds a document, and documents of a task.

        Records that cannot be read are left out: an estimate must not raise an error.
        """
        seen: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
        for record in map(Record, (self._out / "records").glob("*")):
            with suppress(*_UNREADABLE):
                if (record.read("env") or {})["machine"] == platform.node():
                    _add_times_of(record, seen)
        return {key: fmean(values) for key, values in seen.items()}


def steps_left(training: TrainingRun) -> int:
    """Number of optimizer steps between the newest checkpoint and the end."""
    if training.finished:
        return 0
    newest = resume.newest(training.folder / RESUME_FOLDER)
    return int(training.content["recipe"]["steps"]) - (resume.steps_done(newest) if newest else 0)


def describe(plan: Plan, estimator: Estimator | None = None) -> list[dict[str, str]]:
    """One line for each training and sweep, and one for the total."""
    estimator = estimator or Estimator(plan.config.out)
    untrained = {training.folder for training in plan.untrained}
    lines = []
    works: list[TrainingRun | DialEvaluation] = [*plan.trainings, *plan.sweeps]
    for work in works:
        if isinstance(work, DialEvaluation):
            count, unit, estimate, none = estimator.points_left(work), "dial values", estimator.sweep(work), "on disk"
        else:
            count, unit, estimate = steps_left(work), "steps", estimator.training(work)
            count, none = count if work.folder in untrained else 0, "on disk" if work.steps else "nothing to train"
        again = ", failed before" if work.record.state == "failed" else ""
        state = f"{count} {unit} left{again}" if count else none
        lines.append({"work": str(work), "state": state, "time": str(estimate) if count else ""})
    return [*lines, {"work": "together, one after the other", "state": "", "time": str(total(plan, estimator))}]


def total(plan: Plan, estimator: Estimator) -> Estimate:
    """Time of all remaining work, done one piece after the other."""
    return sum([*map(estimator.training, plan.untrained), *map(estimator.sweep, plan.sweeps)], Estimate(0.0))


def _add_times_of(record: Record, seen: defaultdict[tuple[str, ...], list[float]]) -> None:
    """Add the times in one record to `seen`."""
    config = record.read("config") or {}
    for sweep in map(Record, record.folder.glob("eval/*")):
        method, backbone = (sweep.read("config") or {}).get("method", ""), config["backbone"]
        for point in (sweep.read("points") or {}).values() if method else ():
            one_s, task = point["wall_s"] / point["docs"], point["task"]
            seen["document", backbone, method, task].append(one_s)
            seen["document", backbone, task].append(one_s)
            seen["documents", task].append(point["docs"])
    timing = record.read("timing") or {}
    if not timing.get("steps"):
        return
    one_s = timing["train_s"] / (timing["steps"] * config["recipe"]["batch_size"])
    seen["sequence", config["backbone"], config["method"]].append(one_s)
    seen["sequence", config["backbone"]].append(one_s)


def _backbone(training: TrainingRun) -> str:
    return str(training.content["backbone"])
