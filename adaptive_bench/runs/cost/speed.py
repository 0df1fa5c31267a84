"""How fast this machine is: FLOPs a second in short passes of a few layers of the model's width, and what they say of a
run's work. Nothing of the run is loaded for that; its records replace the forecast as they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from transformers import PretrainedConfig

from adaptive_bench.progress import RunningTask
from adaptive_bench.runs.cost.budget import Prices, Workload
from adaptive_bench.runs.planning.backbones import find_device
from adaptive_bench.runs.planning.passes import few_layers, seconds, with_values
from adaptive_bench.spec import MethodSpec

_TOKENS, _LAYERS, _WORDS = 256, 4, 8192  # read at once, and most of the model that reads them


class Rates(NamedTuple):
    """FLOPs a second: in training, in reading a text, and in writing one more token of each text of a batch."""

    training: float
    reading: float
    writing: float


_rates: dict[tuple[Any, ...], Rates] = {}  # measured once: a run is forecast more than once, and says one time


@dataclass(frozen=True)
class Speed:
    """What one process is expected to take for one piece of work.

    Attributes:
        sequence_s: Training on one sequence, by what is trained.
        document_s: Evaluating one document with the model as it is, by task.
        documents: How many there are of each task.
    """

    sequence_s: Mapping[MethodSpec, float] = field(default_factory=dict)
    document_s: Mapping[str, float] = field(default_factory=dict)
    documents: Mapping[str, int] = field(default_factory=dict)


def forecast(work: Workload, trained: Iterable[MethodSpec], jobs: int, task: RunningTask) -> Speed:
    """What the work of a run will take here, by its FLOPs.

    Args:
        work: Its text.
        trained: What is trained.
        jobs: Processes that will work at once, each with its share of the cores.
        task: Advanced by one for the rates, for each training and for the documents.
    """
    recipe, evaluation = work.config.train, work.config.evaluation
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // jobs))
    try:
        device = find_device(work.config.device)
        shape, bf16 = work.prices.empty.config, recipe.precision == "bf16"
        rows = min(evaluation.batch_size, evaluation.limit or evaluation.batch_size)  # for few a step is hardly shorter
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
    """Time passes of a plain model of this width, with few layers and words.

    Args:
        rows: Texts that are written at once.
        bf16: Training computes in bf16.
    """
    empty = few_layers(shape, _LAYERS, _WORDS)
    prices, model = Prices(empty), with_values(empty, device)
    length = min(_TOKENS, prices.context)
    reading = (flops := prices.forward(length, length)) / seconds(model, (1, length), bf16=False)
    training = 3 * flops / seconds(model, (1, length), bf16=bf16, backward=True)  # the way back computes twice as much
    return Rates(training, reading, rows * prices.forward(1, 1) / seconds(model, (rows, 1), bf16=False))
