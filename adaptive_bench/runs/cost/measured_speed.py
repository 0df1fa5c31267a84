"""How fast this machine is at a run's work, timed on a few real steps before the run begins: a training step of each
method on training text of the run, and an evaluation of some of its documents.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from adaptive_bench.config import RunConfig
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.jobs.plugins import needs_own_process
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.progress import RunningTask, SilentReporter
from adaptive_bench.runs.planning.backbones import find_backbone, find_device
from adaptive_bench.runs.planning.training_text import training_tasks
from adaptive_bench.spec import MethodSpec
from adaptive_bench.task import ExampleRequest
from adaptive_bench.training import encode_examples
from adaptive_bench.training.encoding import EncodedExample, padding_id, training_batch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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
    config: RunConfig, trained: Sequence[MethodSpec], tokenizer: PreTrainedTokenizerBase, jobs: int, task: RunningTask
) -> MeasuredSpeed:
    """Time a training step of each method and some documents of each task. What cannot be timed is left out: it fails
    again in its own work, and is told there.

    Args:
        trained: What is trained.
        jobs: Processes that will work at once, each with its share of the cores.
        task: Advanced by one for each method and task.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // jobs))
    sequence_s: dict[MethodSpec, float] = {}
    document_s: dict[str, float] = {}
    try:
        backbone: Any = find_backbone(config.model).load_model()
        backbone = backbone.to(find_device(config.device))
        examples = _examples(config, tokenizer, int(backbone.config.max_position_embeddings))
        for spec in trained if examples and config.train.steps else ():
            with suppress(Exception, SystemExit):
                sequence_s[spec] = _sequence_s(AdaptiveModel.build(backbone, spec), examples, padding_id(tokenizer))
            task.advance(1, of=f"step of {spec}")
        plain = AdaptiveModel.build(backbone, MethodSpec("dense")).eval()
        for name in config.tasks:
            if needs_own_process(name, "tasks"):  # its code is not run here
                continue
            with suppress(Exception, SystemExit):
                document_s[name] = _document_s(plain, tokenizer, name, config)
            task.advance(1, of=f"documents of {name}")
    finally:
        torch.set_num_threads(threads)
    return MeasuredSpeed(sequence_s, document_s)


def _examples(config: RunConfig, tokenizer: PreTrainedTokenizerBase, context: int) -> list[EncodedExample]:
    """Some training sequences of each task."""
    count, longest = min(_SEQUENCES, config.train.batch_size), min(config.train.max_length, context)
    found: list[EncodedExample] = []
    for task in training_tasks(config):
        assert task.training is not None
        text = task.training(ExampleRequest("train", count, config.seeds[0], config.data_dir))
        found += encode_examples(text, tokenizer, longest, SilentReporter(), chat_template=config.chat_template)
    return found


def _sequence_s(model: AdaptiveModel, examples: Sequence[EncodedExample], pad_id: int) -> float:
    device = next(model.parameters()).device
    batch = training_batch(examples, pad_id, device)
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
        )
        taken_s = time.perf_counter() - start_s
    return taken_s / count
