"""How fast this machine is at a run's work, measured in seconds on a few real steps before the run begins.

Each method's training step is timed on training text of the run, writing and scoring on its documents. What runs in
several processes at once is slower in each: a product of matrices, alone and at once, says by how much.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch

from adaptive_bench.config import RunConfig
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.evaluation.lookup import find_task, load_task
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.model.padding import padded
from adaptive_bench.progress import Meter, SilentReporter
from adaptive_bench.runs.planning.backbones import find_backbone, find_device
from adaptive_bench.runs.planning.training_text import training_tasks
from adaptive_bench.spec import MethodSpec
from adaptive_bench.task import ExampleRequest, Task
from adaptive_bench.training import encode_examples
from adaptive_bench.training.encoding import EncodedExample, padding_id, training_batch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SEQUENCES = 16  # of a timed training step, and rows of a timed batch that is written
_DOCUMENTS = 8  # scored
_NEW_TOKENS = 8
_PRODUCT = 512  # side of the matrices


@dataclass(frozen=True)
class Pace:
    """Seconds that a process takes for one piece of work.

    Attributes:
        sequence_s: Training on one sequence, by what is trained.
        document_s: Evaluating one document with the model as it is, by task.
        sequence_tokens: Mean length of a training sequence.
        task_tokens: The same of each task that is trained on.
        slower: How many times as long work takes while all processes work as in one alone.
    """

    sequence_s: Mapping[MethodSpec, float]
    document_s: Mapping[str, float]
    sequence_tokens: float = 0.0
    task_tokens: Mapping[str, float] = field(default_factory=dict)
    slower: float = 1.0

    def length(self, task: str) -> float:
        """How long a task's sequences are, as a share of the mean."""
        return self.task_tokens.get(task, self.sequence_tokens) / self.sequence_tokens if self.sequence_tokens else 1.0


def measure_pace(
    config: RunConfig, trained: Sequence[MethodSpec], tokenizer: PreTrainedTokenizerBase, jobs: int, meter: Meter
) -> Pace:
    """Time a training step of each method and some documents of each task.

    Args:
        trained: What is trained.
        jobs: Processes that will work at once.
        meter: Advanced by one for each method and task.
    """
    device, threads = find_device(config.device), torch.get_num_threads()
    torch.set_num_threads(max(1, threads // jobs))
    try:
        slower = _slowdown(jobs) if jobs > 1 else 1.0
        backbone: Any = find_backbone(config.model).load_model()
        backbone = backbone.to(device)
        by_task = _examples(config, tokenizer, int(backbone.config.max_position_embeddings))
        examples = [example for some in by_task.values() for example in some]
        sequences: dict[MethodSpec, float] = {}
        for spec in trained if examples and config.train.steps else ():
            with suppress(Exception, SystemExit):  # what fails here fails again in its own work, and is told there
                sequences[spec] = slower * _training_s(
                    AdaptiveModel.build(backbone, spec), examples, padding_id(tokenizer)
                )
            meter.advance(1, of=f"step of {spec}")
        documents: dict[str, float] = {}
        plain = AdaptiveModel.build(backbone, MethodSpec("dense")).eval()
        for name in config.tasks:
            documents[name] = slower * _document_s(plain, tokenizer, find_task(name), config)
            meter.advance(1, of=f"documents of {name}")
    finally:
        torch.set_num_threads(threads)
    tokens = {name: _mean_tokens(some) for name, some in by_task.items() if some}
    return Pace(sequences, documents, _mean_tokens(examples) if examples else 0.0, tokens, slower)


def _mean_tokens(examples: Sequence[EncodedExample]) -> float:
    return fmean(len(example.token_ids) for example in examples)


def _examples(config: RunConfig, tokenizer: PreTrainedTokenizerBase, context: int) -> dict[str, list[EncodedExample]]:
    """Some training sequences of each task."""
    count, longest = min(_SEQUENCES, config.train.batch_size), min(config.train.max_length, context)
    found = {}
    for task in training_tasks(config):
        assert task.training is not None
        text = task.training(ExampleRequest("train", count, config.seeds[0], config.data_dir))
        found[task.name] = encode_examples(
            text, tokenizer, longest, SilentReporter(), chat_template=config.chat_template
        )
    return found


def _training_s(model: AdaptiveModel, examples: Sequence[EncodedExample], pad_id: int) -> float:
    device = next(model.parameters()).device
    batch = training_batch(examples, pad_id, device)
    parameters = [parameter for group in model.parameter_groups(1e-9) for parameter in group["params"]]
    model.begin_step(1, 2)
    model.train()

    def step() -> None:
        loss = model(**batch, return_logits=False).loss
        if loss.requires_grad:
            loss.backward()

    taken = _timed(step, device)
    for parameter in parameters:
        parameter.grad = None
    return taken / len(examples)


def _document_s(model: AdaptiveModel, tokenizer: PreTrainedTokenizerBase, task: Task, config: RunConfig) -> float:
    if task.kind != "generative":
        recipe = config.evaluation
        count = min(_DOCUMENTS, recipe.limit or _DOCUMENTS)
        load_task(task, config.data_dir, recipe.num_fewshot)  # once for all documents and dial values
        start_s = time.perf_counter()
        evaluate(
            model,
            tokenizer,
            task.name,
            data_dir=config.data_dir,
            limit=count,
            num_fewshot=recipe.num_fewshot,
            batch_size=recipe.batch_size,
            chat_template=config.chat_template,
        )
        return (time.perf_counter() - start_s) / count
    harness: Any = load_task(task, config.data_dir, config.evaluation.num_fewshot)
    documents = list(harness.eval_docs)[: min(_SEQUENCES, config.evaluation.batch_size)]
    shots = int(harness.config.num_fewshot or 0)
    prompts = [tokenizer(harness.doc_to_text(document)).input_ids for document in documents]
    answers = [len(tokenizer(str(harness.doc_to_target(document))).input_ids) for document in documents]
    length = model.backbone.context_length - _NEW_TOKENS
    prompts = [
        (shots * (prompt + prompt) + prompt)[-length:] for prompt in prompts
    ]  # examples with answers: about twice
    device = next(model.parameters()).device
    input_ids, mask = padded(prompts, device, left=True)

    def write(count: int) -> Callable[[], None]:
        return lambda: _write(model, input_ids, mask, count)

    first_s, more_s = _timed(write(1), device), _timed(write(1 + _NEW_TOKENS), device)
    step_s = max(0.0, more_s - first_s) / _NEW_TOKENS
    return (first_s + step_s * sum(answers) / len(answers)) / len(documents)


def _write(model: AdaptiveModel, input_ids: torch.Tensor, mask: torch.Tensor, count: int) -> None:
    with torch.inference_mode():
        new_tokens(model, input_ids, mask, max_new_tokens=count)


def _timed(call: Callable[[], None], device: torch.device) -> float:
    """Seconds of the second of two calls: the first one warms up."""
    taken = 0.0
    for _ in range(2):
        start_s = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken = time.perf_counter() - start_s
    return taken


def _slowdown(jobs: int) -> float:
    """How much longer a product of matrices takes while others are under way."""
    matrix = torch.randn(_PRODUCT, _PRODUCT)

    def multiply(_: int = 0) -> float:
        start_s = time.perf_counter()
        for _ in range(10):
            matrix @ matrix
        return time.perf_counter() - start_s

    multiply()
    alone_s = multiply()
    with ThreadPoolExecutor(jobs) as pool:
        together_s = list(pool.map(multiply, range(jobs)))
    return max(1.0, max(together_s) / alone_s)
