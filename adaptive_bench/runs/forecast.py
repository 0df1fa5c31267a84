"""Forecasts how long the work of a run takes.

A forecast rests on the mean times in earlier records of this machine, else on the work's FLOPs at this machine's rate,
else on a rough guess. It is an order of magnitude, not a promise; the run corrects it as it goes.
"""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from transformers import PretrainedConfig

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.runs.backbone_source import find_device
from adaptive_bench.runs.measured_settings import few_layers, seconds, with_values
from adaptive_bench.runs.run_plan import Plan
from adaptive_bench.runs.work_units import DialEvaluation, TrainingRun
from adaptive_bench.runs.workload import Prices, Workload
from adaptive_bench.spec import MethodSpec, method_name
from adaptive_bench.store.records import Record
from adaptive_bench.training import resume
from adaptive_bench.training.loop import RESUME_FOLDER

_TOKENS, _LAYERS, _WORDS = 256, 4, 8192  # at most, of the text and of the model that rates are measured with
# Without records and rates: what the nano model takes on a CPU core.
_ROUGH_SEQUENCE_S, _ROUGH_DOCUMENT_S, _ROUGH_DOCUMENTS = 0.01, 0.01, 1000
# Time to set thresholds in one pass over a text and to check them in another, as a share of the time to train on that
# text; measured on nano.
_CALIBRATION_PASSES = 0.45
_CALIBRATIONS = 2  # for each measured point, because some dial values are only probed on held-out text


class Rates(NamedTuple):
    """FLOPs a second in training, in reading a text, and in writing one more token of every text in a batch."""

    training: float
    reading: float
    writing: float


_rates: dict[tuple[Any, ...], Rates] = {}  # measured once, so that repeated forecasts of a run agree


class Speed:
    """The time that one process takes for the work of a run, by its FLOPs at this machine's rates.

    Args:
        jobs: Number of processes that will work at once, each with an equal share of the cores.
    """

    def __init__(self, work: Workload, jobs: int = 1) -> None:
        self.work, self.jobs = work, jobs

    @cached_property
    def _rates(self) -> Rates:
        config, shape = self.work.config, self.work.prices.empty.config
        device, bf16 = find_device(config.device), config.train.precision == "bf16"
        # Few documents make a smaller batch, and a step with fewer rows is hardly shorter.
        rows = min(config.evaluation.batch_size, config.evaluation.limit or config.evaluation.batch_size)
        threads = torch.get_num_threads()
        torch.set_num_threads(max(1, threads // self.jobs))
        try:
            about = shape.to_json_string(), device, rows, bf16, torch.get_num_threads()
            if about not in _rates:
                _rates[about] = measure_rates(shape, device, rows, bf16=bf16)
        finally:
            torch.set_num_threads(threads)
        return _rates[about]

    def sequence_s(self, spec: MethodSpec) -> float:
        """Seconds of training a method on one sequence."""
        return self.work.training_flops(spec) / self._rates.training

    def document_s(self, task: str) -> float:
        """Seconds of evaluating the dense model on one document."""
        asked = self.work.asked(task)
        return (asked.reading / self._rates.reading + asked.writing / self._rates.writing) / max(1, asked.documents)

    def documents(self, task: str) -> int:
        """Number of documents that the run asks."""
        return self.work.asked(task).documents


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


class Estimator:
    """Estimates the seconds of trainings and evaluations.

    Args:
        out: The output folder; means of the records that this machine made in it come first.
        speed: This machine's speed; without it, what no record tells is a guess.
        traits: What is known of each method, by method spec.
    """

    def __init__(self, out: Path, speed: Speed | None = None, traits: Mapping[str, Trait] | None = None) -> None:
        self._out, self.speed, self._traits = out, speed, traits or {}

    def training(self, training: TrainingRun) -> float:
        """Seconds of a training's remaining steps."""
        left = steps_left(training)
        return self._sequence_s(training) * left * training.content["recipe"]["batch_size"] if left else 0.0

    def point(self, sweep: DialEvaluation) -> float:
        """Seconds of an evaluation at one dial value."""
        limit, task = sweep.config.evaluation.limit, sweep.task
        documents = _ROUGH_DOCUMENTS if self.speed is None else self.speed.documents(task)
        known = self._means.get(("document", _backbone(sweep.training), sweep.spec.name, task))
        if known is None:
            known = _ROUGH_DOCUMENT_S if self.speed is None else self.speed.document_s(task)
        return min(limit or documents, documents) * known

    def calibration(self, sweep: DialEvaluation) -> float:
        """Seconds of calibrating one dial value."""
        passes = _CALIBRATION_PASSES if self._trait(sweep).calibrates else 0.0
        passes += _CALIBRATION_PASSES / 2 if sweep.variant else 0.0  # one more pass collects decisions to shuffle
        examples = sweep.config.evaluation.calibration_examples
        return passes * examples * self._sequence_s(sweep.training) if passes else 0.0

    def points_left(self, sweep: DialEvaluation) -> int:
        """Number of dial values left, as far as that is known beforehand."""
        return sweep.points_left(self._trait(sweep).end)

    def sweep(self, sweep: DialEvaluation) -> float:
        """Seconds of a sweep's remaining points."""
        points = self.points_left(sweep)
        return points * (self.point(sweep) + _CALIBRATIONS * self.calibration(sweep)) if points else 0.0

    def total(self, plan: Plan) -> float:
        """Seconds of all remaining work, done one piece after the other."""
        return sum(map(self.training, plan.untrained)) + sum(map(self.sweep, plan.sweeps))

    def _trait(self, sweep: DialEvaluation) -> Trait:
        return self._traits.get(str(sweep.spec), Trait())

    def _sequence_s(self, training: TrainingRun) -> float:
        """Seconds of training on one sequence."""
        known = self._means.get(("sequence", _backbone(training), training.spec.name))
        if known is None:
            known = _ROUGH_SEQUENCE_S if self.speed is None else self.speed.sequence_s(training.spec)
        return known

    @cached_property
    def _means(self) -> dict[tuple[str, ...], float]:
        """Mean seconds of a sequence and of a document in the records, by backbone and method.

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
    return training.steps - (resume.steps_done(newest) if newest else 0)


def _add_times_of(record: Record, seen: defaultdict[tuple[str, ...], list[float]]) -> None:
    """Add the times in one record to `seen`."""
    config = record.read("config") or {}
    for sweep in map(Record, record.folder.glob("eval/*")):
        method = (sweep.read("config") or {}).get("method", "")
        for point in (sweep.read("points") or {}).values() if method else ():
            about = "document", config["backbone"], method_name(method), point["task"]
            seen[about].append(point["wall_s"] / point["docs"])
    if (timing := record.read("timing") or {}).get("steps"):
        one_s = timing["train_s"] / (timing["steps"] * config["recipe"]["batch_size"])
        seen["sequence", config["backbone"], method_name(config["method"])].append(one_s)


def _backbone(training: TrainingRun) -> str:
    return str(training.content["backbone"])
