"""What a run takes in FLOPs and GPU-hours, from sizes alone: of the model, of its text, of the plan.

FLOPs are those of the dense model with every token executed, in training as in evaluation: what methods add and save is
not known before they run. Matrix products and attention count, two FLOPs a multiply-accumulate; training takes three
times a forward pass, two with LoRA (frozen weights need no gradient), and one more with gradient checkpointing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from adaptive_bench.backbone import Backbone
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import AdaptiveBenchError, one_line
from adaptive_bench.evaluation.drawn import ask_only, drawn
from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED
from adaptive_bench.evaluation.lookup import expand_tasks, find_task, load_task
from adaptive_bench.evaluation.quiet import quiet
from adaptive_bench.evaluation.sweep import first_savings
from adaptive_bench.method import method_class, method_of, starting_spec, takes_target, training_spec
from adaptive_bench.progress import SilentReporter
from adaptive_bench.recipe import TrainRecipe
from adaptive_bench.runs.planning.shapes import shape_of_model
from adaptive_bench.runs.planning.shuffled import has_control
from adaptive_bench.runs.planning.training_targets import TrainingTargets
from adaptive_bench.runs.planning.training_text import training_tasks
from adaptive_bench.spec import MethodSpec
from adaptive_bench.task import ExampleRequest, Task
from adaptive_bench.training import encode_examples

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_FLOPS_PER_MAC = 2
_LOOKED_AT = 32  # documents of a task, training examples of a task
_BYTES_PER_TOKEN = 4  # of English text, with tokenizers of 32,000 words and more


@dataclass(frozen=True)
class Budget:
    """What is to be done, and what it takes.

    Attributes:
        trainings, steps: How many trainings, and optimizer steps in all of them.
        tokens: Read in training.
        bounded: Training text could not be looked at: `tokens` and its FLOPs are what full sequences take.
        training_flops: Of all trainings.
        dial_values: Evaluations of one task at one dial value.
        evaluation_flops: Of those whose documents could be read.
        unknown: By task, why its documents could not be read.
    """

    trainings: int
    steps: int
    tokens: float
    bounded: bool
    training_flops: float
    dial_values: int
    evaluation_flops: float
    unknown: Mapping[str, str] = field(default_factory=dict)

    def hours(self, flops_per_s: float) -> tuple[float, float]:
        """Hours of training and of evaluation where a device sustains so many FLOPs a second."""
        return self.training_flops / flops_per_s / 3600, self.evaluation_flops / flops_per_s / 3600


class Prices:
    """Costs of passes through a model, from its shapes; its tensors need no values."""

    def __init__(self, empty: PreTrainedModel) -> None:
        backbone = Backbone(empty)
        costs = backbone.costs
        self._linear = float((costs.attn_q_o + costs.attn_kv + costs.mlp).sum())
        self._pair, self._head = float(costs.pair.sum()), float(backbone.head_macs)
        self.context = backbone.context_length

    def forward(self, tokens: float, answers: float) -> float:
        """FLOPs of reading so many tokens, with the head at some of them; longer texts are read in windows."""
        pairs = tokens * min(tokens, self.context) / 2
        return _FLOPS_PER_MAC * (self._linear * tokens + self._pair * pairs + self._head * answers)

    def training(self, tokens: float, recipe: TrainRecipe) -> float:
        """FLOPs of a forward and a backward pass over one sequence."""
        passes = (3 if recipe.lora is None else 2) + recipe.gradient_checkpointing
        return passes * self.forward(tokens, tokens)


def empty_model(name: str) -> PreTrainedModel | None:
    """A model of the shape that is stored for a hub id, with tensors that have no values; `None` if there is none."""
    shape = shape_of_model(name)
    if shape is None:
        return None
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(shape, dtype=torch.float32)


def count_work(config: RunConfig, empty: PreTrainedModel) -> tuple[list[int], dict[str, int]]:
    """Steps of each training, and dial values by task, of a whole run of which nothing is on disk."""
    specs = [MethodSpec.parse(text) for text in config.methods]
    tasks = {name: find_task(name) for name in expand_tasks(config.tasks)}
    targets = TrainingTargets.of(config, tasks.values(), {}, lambda: empty)
    trained: dict[MethodSpec, int] = {}
    for spec in map(training_spec, specs):
        chain: MethodSpec | None = spec
        while chain is not None:
            found = method_class(chain)
            several = found.trains and takes_target(chain)
            trained[chain] = len(targets.goals(found)) if several else 1
            chain = starting_spec(chain)
    steps = [
        config.train.steps if method_class(spec).trains else 0
        for spec, times in trained.items()
        for _ in range(times * len(config.seeds))
    ]
    values = {}
    for name, task in tasks.items():
        levels = config.levels or task.levels
        reach = [first_savings(_end(empty, spec), levels, config.evaluation) for spec in specs]
        trainings = [trained[training_spec(spec)] for spec in specs]
        # Of several targets, validation documents choose the one that serves a level.
        asked = [1 + has_control(spec, config) + (count > 1) for spec, count in zip(specs, trainings, strict=True)]
        counts = [len(savings) * count * times for savings, count, times in zip(reach, trainings, asked, strict=True)]
        values[name] = sum(counts) * len(config.seeds)
    return steps, values


def budget(
    config: RunConfig,
    empty: PreTrainedModel,
    steps: Sequence[int],
    dial_values: Mapping[str, int],
    tokenizer: PreTrainedTokenizerBase | None,
) -> Budget:
    """Price some work.

    Args:
        empty: The model, or one of its shape.
        steps: Optimizer steps of each training.
        dial_values: Evaluations of each task.
        tokenizer: The model's; without it tokens are guessed from bytes.
    """
    prices = Prices(empty)
    length, bounded = _sequence_tokens(config, prices.context, tokenizer)
    sequences = sum(steps) * config.train.batch_size
    evaluation, unknown = 0.0, {}
    for name, count in dial_values.items():
        try:
            evaluation += count * _task_flops(find_task(name), config, prices, tokenizer)
        except AdaptiveBenchError as error:
            unknown[name] = one_line(str(error), 400)
    return Budget(
        trainings=sum(each > 0 for each in steps),
        steps=sum(steps),
        tokens=sequences * length,
        bounded=bounded,
        training_flops=sequences * prices.training(length, config.train),
        dial_values=sum(dial_values.values()),
        evaluation_flops=evaluation,
        unknown=unknown,
    )


def _end(empty: PreTrainedModel, spec: MethodSpec) -> Any:
    with torch.device("meta"):
        return method_of(spec, Backbone(empty))


def _sequence_tokens(config: RunConfig, context: int, tokenizer: PreTrainedTokenizerBase | None) -> tuple[float, bool]:
    """Mean length of a training sequence, and whether it is only known not to be exceeded."""
    most = min(config.train.max_length, context)
    lengths: list[float] = []
    try:
        for task in training_tasks(config) if config.train.steps else ():
            request = ExampleRequest("train", _LOOKED_AT, config.seeds[0], config.data_dir, most)
            found = [one for one in task.examples(request) if one.prompt]
            if not found:  # documents of a corpus are packed into full sequences
                lengths.append(most)
            elif tokenizer is None:
                sizes = [len(f"{one.prompt}{one.completion}".encode()) / _BYTES_PER_TOKEN for one in found]
                lengths.append(fmean(min(size, most) for size in sizes))
            else:
                chat = config.chat_template
                encoded = encode_examples(found, tokenizer, most, SilentReporter(), chat_template=chat)
                lengths.append(fmean(len(one.token_ids) for one in encoded))
    except AdaptiveBenchError:
        return most, True
    return (fmean(lengths) if lengths else most), False


def _task_flops(task: Task, config: RunConfig, prices: Prices, tokenizer: PreTrainedTokenizerBase | None) -> float:
    """FLOPs of one dial value; texts are taken to be written as long as the right ones."""
    harness: Any = load_task(task, config.data_dir, config.evaluation.num_fewshot)
    numbers = drawn(task, len(harness.eval_docs), config.evaluation.limit)
    wanted = len(numbers)
    chosen = sorted({numbers[wanted * place // _LOOKED_AT] for place in range(_LOOKED_AT)})
    harness.set_fewshot_seed(FEWSHOT_SEED)
    ask_only(harness, chosen)
    with quiet():
        harness.build_all_requests()

    def tokens(text: str) -> float:
        if tokenizer is None:
            return len(text.encode()) / _BYTES_PER_TOKEN
        return len(tokenizer(text, add_special_tokens=False).input_ids)

    contexts: dict[tuple[int, str], float] = {}  # several answers to one context share its pass
    for request in harness.instances:
        context, answer = ("", request.args[0]) if len(request.args) == 1 else request.args
        if request.request_type == "generate_until":
            answer = str(harness.doc_to_target(request.doc))
        place = request.doc_id, context
        contexts[place] = contexts.get(place, 0.0) + tokens(answer)
    flops = [prices.forward(tokens(context) + answers, answers) for (_, context), answers in contexts.items()]
    return math.fsum(flops) * wanted / len(chosen)
