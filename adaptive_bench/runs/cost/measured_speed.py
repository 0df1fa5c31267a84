"""How fast this machine is at a run's work, timed on a few real steps before the run begins: a training step of each
method on training text of the run, and an evaluation of some of its documents.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch

from adaptive_bench.config import RunConfig
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.jobs.plugins import needs_own_process
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.quantization import quantize
from adaptive_bench.progress import RunningTask, SilentReporter
from adaptive_bench.runs.cost.remembered_speed import RememberedSpeed
from adaptive_bench.runs.planning.backbones import find_backbone, find_device
from adaptive_bench.runs.planning.task_inputs import task_inputs
from adaptive_bench.runs.planning.training_text import training_tasks
from adaptive_bench.source import code_behind
from adaptive_bench.spec import MethodSpec
from adaptive_bench.task import ExampleRequest
from adaptive_bench.training import encode_examples
from adaptive_bench.training.encoding import EncodedExample, padding_id, training_batch

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

_SEQUENCES = 16  # of a timed training step
_DOCUMENTS = 8  # of a timed evaluation


@dataclass(frozen=True)
class MeasuredSpeed:
    """Seconds that a process takes for one piece of work.

    Attributes:
        sequence_s: Training on one sequence, by what is trained.
        document_s: Evaluating one document with the model as it is, by task.
    """

    sequence_s: Mapping[MethodSpec, float] = field(default_factory=dict)
    document_s: Mapping[str, float] = field(default_factory=dict)


def measure_speed(
    config: RunConfig,
    trained: Sequence[MethodSpec],
    shape: PretrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    jobs: int,
    task: RunningTask,
) -> MeasuredSpeed:
    """Time a training step of each method and some documents of each task, unless this machine was timed at it before.
    What cannot be timed is left out: it fails again in its own work, and is told there.

    Args:
        trained: What is trained.
        shape: Config of the model.
        jobs: Processes that will work at once, each with its share of the cores.
        task: Advanced by one for each method and task.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // jobs))
    sequence_s: dict[MethodSpec, float] = {}
    document_s: dict[str, float] = {}
    try:
        timed = _Timed(config, shape, tokenizer)
        for spec in trained if config.train.steps and training_tasks(config) else ():
            if (seconds := timed.seconds(_step(spec, config), partial(timed.sequence_s, spec))) is not None:
                sequence_s[spec] = seconds
            task.advance(1, of=f"step of {spec}")
        for name in config.tasks:
            if needs_own_process(name, "tasks"):  # its code is not run here
                continue
            if (seconds := timed.seconds(_some_documents(name, config), partial(timed.document_s, name))) is not None:
                document_s[name] = seconds
            task.advance(1, of=f"documents of {name}")
    finally:
        torch.set_num_threads(threads)
    return MeasuredSpeed(sequence_s, document_s)


class _Timed:
    """The model that is timed, loaded when the first speed is not known."""

    def __init__(self, config: RunConfig, shape: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
        self._config, self._tokenizer = config, tokenizer
        self._known = RememberedSpeed(shape, find_device(config.device))

    def seconds(self, work: Mapping[str, Any], timed: Callable[[], float]) -> float | None:
        """What some work took when this machine was timed at it before, else now; `None` where it fails.

        Raises:
            EnvironmentProblem: The model cannot be loaded.
        """
        if (known := self._known.get(work)) is not None:
            return known
        _ = self._backbone  # weights that cannot be read are told here: nothing of the run could use them
        with suppress(Exception, SystemExit):
            taken_s = timed()
            self._known.put(work, taken_s)
            return taken_s
        return None

    def sequence_s(self, spec: MethodSpec) -> float:
        return _sequence_s(AdaptiveModel.build(self._backbone, spec), self._examples, padding_id(self._tokenizer))

    def document_s(self, task: str) -> float:
        return _document_s(self._plain, self._tokenizer, task, self._config)

    @cached_property
    def _backbone(self) -> Any:
        model: Any = find_backbone(self._config.model).load_model()
        return model.to(find_device(self._config.device))

    @cached_property
    def _plain(self) -> AdaptiveModel:
        # Steps of training are timed on the same weights: a copy is quantized.
        how = self._config.evaluation.quantize
        own = self._backbone if how == "none" else deepcopy(self._backbone)
        return quantize(AdaptiveModel.build(own, MethodSpec("dense")).eval(), how)

    @cached_property
    def _examples(self) -> list[EncodedExample]:
        return _examples(self._config, self._tokenizer, int(self._backbone.config.max_position_embeddings))


def _step(spec: MethodSpec, config: RunConfig) -> dict[str, Any]:
    """What the time of a training step depends on."""
    return {
        "trained": str(spec),
        "code": code_behind(spec.name, "training"),
        "sequences": min(_SEQUENCES, config.train.batch_size),
        "longest": config.train.max_length,
        "text": [[task.name, task_inputs(task, config.data_dir)] for task in training_tasks(config)],
        "chat": config.chat_template,
    }


def _some_documents(task: str, config: RunConfig) -> dict[str, Any]:
    """What the time of an evaluation depends on."""
    recipe = config.evaluation
    return {
        "evaluated": [task, task_inputs(find_task(task), config.data_dir)],
        "documents": min(_DOCUMENTS, recipe.limit or _DOCUMENTS),
        "shots": recipe.num_fewshot,
        "batch": recipe.batch_size,
        "chat": config.chat_template,
        **({"temperature": recipe.temperature} if recipe.temperature else {}),
        **({"quantize": recipe.quantize} if recipe.quantize != "none" else {}),
    }


def _examples(config: RunConfig, tokenizer: PreTrainedTokenizerBase, context: int) -> list[EncodedExample]:
    """Some training sequences of each task."""
    count, longest = min(_SEQUENCES, config.train.batch_size), min(config.train.max_length, context)
    found: list[EncodedExample] = []
    for task in training_tasks(config):
        text = task.examples(ExampleRequest("train", count, config.seeds[0], config.data_dir))
        found += encode_examples(text, tokenizer, longest, SilentReporter(), chat_template=config.chat_template)
    return found


def _sequence_s(model: AdaptiveModel, examples: Sequence[EncodedExample], pad_id: int) -> float:
    device = next(model.parameters()).device
    batch = training_batch(examples, pad_id, device)
    model.prepare_training([batch])
    model.begin_step(1, 2)
    model.train()
    taken_s = 0.0
    for _ in range(2):  # the first one warms up
        start_s = time.perf_counter()
        loss = model(**batch, return_logits=False).loss
        if loss.requires_grad:
            loss.backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken_s = time.perf_counter() - start_s
    model.zero_grad(set_to_none=True)
    return taken_s / len(examples)


def _document_s(model: AdaptiveModel, tokenizer: PreTrainedTokenizerBase, task: str, config: RunConfig) -> float:
    recipe, taken_s = config.evaluation, 0.0
    count = min(_DOCUMENTS, recipe.limit or _DOCUMENTS)
    for _ in range(2):  # the first one loads the documents, once for all dial values
        start_s = time.perf_counter()
        evaluate(
            model,
            tokenizer,
            task,
            data_dir=config.data_dir,
            limit=count,
            num_fewshot=recipe.num_fewshot,
            batch_size=recipe.batch_size,
            chat_template=config.chat_template,
            temperature=recipe.temperature,
        )
        taken_s = time.perf_counter() - start_s
    return taken_s / count
