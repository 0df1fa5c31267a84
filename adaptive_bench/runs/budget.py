"""What a run takes in FLOPs and GPU-hours, from sizes alone: of the model, of its text, of the plan.

FLOPs of training are counted in one step of each method without values (`training.dry_step`): its backward pass, gates,
heads at every layer, adapters and what is computed twice are in it. Evaluation is that of the dense model with every
token executed: what methods save is not known before they run. Two FLOPs a multiply-accumulate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from adaptive_bench.backbone import Backbone
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import AdaptiveBenchError, one_line
from adaptive_bench.evaluation.drawn import ask_only, drawn
from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED, set_writing
from adaptive_bench.evaluation.generation_settings import GenerationSettings
from adaptive_bench.evaluation.lookup import expand_tasks, find_task, load_task
from adaptive_bench.evaluation.quiet import quiet
from adaptive_bench.jobs.job import needs_own_process
from adaptive_bench.method import method_class, method_of, starting_spec, takes_target, training_spec
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.adapters import Adapters
from adaptive_bench.progress import SilentReporter
from adaptive_bench.recipe import TrainRecipe
from adaptive_bench.runs.shapes import shape_of_model
from adaptive_bench.runs.training_targets import TrainingTargets, has_control, levels_of
from adaptive_bench.runs.training_text import training_tasks
from adaptive_bench.runs.work_units import expected_points
from adaptive_bench.spec import MethodSpec
from adaptive_bench.task import ExampleRequest, Task
from adaptive_bench.training import encode_examples
from adaptive_bench.training.dry_step import DryStep, dry_step

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_FLOPS_PER_MAC = 2
_LOOKED_AT = 32  # documents of a task, training examples of a task
_BYTES_PER_TOKEN = 4  # of English text, with tokenizers of 32,000 words and more
_steps: dict[tuple[MethodSpec, tuple[Any, ...]], float] = {}  # FLOPs of a method: a run is forecast more than once
_LONGEST_DRY = 256  # tokens of a step without values: what it takes is in proportion


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


@dataclass(frozen=True)
class Asked:
    """Documents of a task at one dial value: how many, and the FLOPs of reading and of writing them.

    Texts are taken to be written as long as the right ones; in a first look, whose models are hardly trained and do
    not come to an end, as long as they may be.
    """

    documents: int
    reading: float
    writing: float


class Prices:
    """Costs of passes through a model, from its shapes; its tensors need no values."""

    def __init__(self, empty: PreTrainedModel) -> None:
        self.empty = empty
        backbone = Backbone(empty)
        costs = backbone.costs
        self._linear = float((costs.attn_q_o + costs.attn_kv + costs.mlp).sum())
        self._pair, self._head = float(costs.pair.sum()), float(backbone.head_macs)
        self.context = backbone.context_length

    def forward(self, tokens: float, answers: float) -> float:
        """FLOPs of reading so many tokens, with the head at some of them; longer texts are read in windows."""
        pairs = tokens * min(tokens, self.context) / 2
        return _FLOPS_PER_MAC * (self._linear * tokens + self._pair * pairs + self._head * answers)

    def trainee(self, spec: MethodSpec, recipe: TrainRecipe) -> AdaptiveModel:
        """A method on the model as it is trained, without values."""
        model = AdaptiveModel.build(deepcopy(self.empty), spec)
        if recipe.lora is not None and not model.method.freezes_backbone:
            Adapters(model.backbone_model, recipe.lora)
        model.gradient_checkpointing = recipe.gradient_checkpointing
        return model.to("meta")

    def step(
        self, spec: MethodSpec, recipe: TrainRecipe, length: int, labels: int, *, watched: bool = False
    ) -> DryStep | None:
        """A step of a method on one sequence (`dry_step`); `None` where its code needs values, or is a plugin's."""
        if needs_own_process(spec.name):
            return None
        try:
            return dry_step(self.trainee(spec, recipe), 1, length, labels, watched=watched)
        except Exception:  # noqa: BLE001 - a forecast stands in nobody's way: what is wrong shows in the work
            return None

    def training(self, tokens: float, recipe: TrainRecipe) -> float:
        """FLOPs of a forward and a backward pass of the dense model over one sequence."""
        passes = (3 if recipe.lora is None else 2) + recipe.gradient_checkpointing
        return passes * self.forward(tokens, tokens)


class Workload:
    """The text of a run in numbers, on one model.

    Args:
        empty: The model, or one of its shape.
        tokenizer: The model's; without it tokens are guessed from bytes.

    Attributes:
        tokens, labels: Mean length of a training sequence, and how much of it is predicted.
        longest: Of the training sequences looked at.
        bounded: They are only known not to be exceeded.
    """

    def __init__(self, config: RunConfig, empty: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> None:
        self.config, self.prices, self._tokenizer = config, Prices(empty), tokenizer
        most = min(config.train.max_length, self.prices.context)
        try:
            lengths = list(self._sequences(most)) or [(float(most), float(most), float(most))]
            self.bounded = False
        except AdaptiveBenchError:
            lengths, self.bounded = [(float(most), float(most), float(most))], True
        tokens, labels, longest = zip(*lengths, strict=True)
        self.tokens, self.labels, self.longest = fmean(tokens), fmean(labels), round(max(longest))
        recipe = config.train
        self._about = (
            empty.config.to_json_string(),
            self.tokens,
            self.labels,
            recipe.lora,
            recipe.gradient_checkpointing,
        )

    def training_flops(self, spec: MethodSpec) -> float:
        """FLOPs of training a method on one sequence, counted on a short one."""
        if (known := (spec, self._about)) not in _steps:
            recipe, short = self.config.train, min(round(self.tokens), _LONGEST_DRY)
            labels = max(1, min(short - 1, round(short * self.labels / self.tokens)))
            counted = self.prices.step(spec, recipe, short, labels)
            per_token = self.prices.training(self.tokens, recipe) if counted is None else counted.flops
            _steps[known] = per_token * (1 if counted is None else self.tokens / short)
        return _steps[known]

    @cached_property
    def asked(self) -> tuple[dict[str, Asked], dict[str, str]]:
        """By task its documents, and of those that cannot be read, why."""
        found, unknown = dict[str, Asked](), dict[str, str]()
        for name in self.config.tasks:
            try:
                found[name] = self._documents(find_task(name))
            except AdaptiveBenchError as error:
                unknown[name] = one_line(str(error), 400)
        return found, unknown

    def _sequences(self, most: int) -> Iterable[tuple[float, float, float]]:
        """Of the training text of each task the mean tokens and labels of a sequence, and its most tokens."""
        config = self.config
        for task in training_tasks(config) if config.train.steps else ():
            request = ExampleRequest("train", _LOOKED_AT, config.seeds[0], config.data_dir, most)
            found = [one for one in task.examples(request) if one.prompt]
            if not found:  # documents of a corpus are packed into full sequences
                yield most, most, most
                continue
            if self._tokenizer is None:
                texts = [(f"{one.prompt}{one.completion}", one.completion) for one in found]
                sizes = [tuple(min(len(text.encode()) / _BYTES_PER_TOKEN, most) for text in pair) for pair in texts]
            else:
                chat = config.chat_template
                encoded = encode_examples(found, self._tokenizer, most, SilentReporter(), chat_template=chat)
                sizes = [(len(one.token_ids), one.loss_tokens) for one in encoded]
            tokens, labels = zip(*sizes, strict=True)
            yield fmean(tokens), fmean(labels), max(tokens)

    def _documents(self, task: Task) -> Asked:
        config = self.config
        how = config.evaluation
        harness: Any = copy(load_task(task, config.data_dir, how.num_fewshot))
        set_writing(harness, how.temperature, how.stop_strings, how.max_new_tokens)
        numbers = drawn(task, len(harness.eval_docs), how.limit)
        wanted = len(numbers)
        chosen = sorted({numbers[wanted * place // _LOOKED_AT] for place in range(_LOOKED_AT)})
        harness.set_fewshot_seed(FEWSHOT_SEED)
        ask_only(harness, chosen)
        with quiet():
            harness.build_all_requests()
        contexts: dict[tuple[int, str], tuple[float, float]] = {}  # several answers to one context share its pass
        for request in harness.instances:
            context, answer = ("", request.args[0]) if len(request.args) == 1 else request.args
            writes = request.request_type == "generate_until"
            if writes and config.is_quick:
                length = float(GenerationSettings.read(answer).max_new_tokens)
            else:
                length = self._count(str(harness.doc_to_target(request.doc)) if writes else answer)
            read, written = contexts.get((request.doc_id, context), (0.0, 0.0))
            contexts[request.doc_id, context] = (read, written + length) if writes else (read + length, written)
        reading = writing = 0.0
        for (_, context), (read, written) in contexts.items():
            tokens = self._count(context) + read
            reading += self.prices.forward(tokens, read)
            writing += self.prices.forward(tokens + written, read + written) - self.prices.forward(tokens, read)
        return Asked(wanted, reading * wanted / len(chosen), writing * wanted / len(chosen))

    def _count(self, text: str) -> float:
        if self._tokenizer is None:
            return len(text.encode()) / _BYTES_PER_TOKEN
        return len(self._tokenizer(text, add_special_tokens=False).input_ids)


def empty_model(name: str) -> PreTrainedModel | None:
    """A model of the shape that is stored for a hub id, with tensors that have no values; `None` if there is none."""
    shape = shape_of_model(name)
    if shape is None:
        return None
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(shape, dtype=torch.float32)


def count_work(config: RunConfig, empty: PreTrainedModel) -> tuple[list[tuple[MethodSpec, int]], dict[str, int]]:
    """Steps of each training of a method, and dial values by task, of a whole run of which nothing is on disk."""
    specs = [MethodSpec.parse(text) for text in config.methods]
    targets = TrainingTargets.of(config, levels_of(config, Backbone(empty).num_layers), {})
    trained: dict[MethodSpec, int] = {}
    for spec in map(training_spec, specs):
        chain: MethodSpec | None = spec
        while chain is not None:
            found = method_class(chain)
            trained[chain] = len(targets.goals) if found.trains and takes_target(chain) else 1
            chain = starting_spec(chain)
    steps = [
        (spec, config.train.steps if method_class(spec).trains else 0)
        for spec, times in trained.items()
        for _ in range(times * len(config.seeds))
    ]
    values = 0  # of each task: with a target for each level every level is judged on a training of its own
    for spec in specs:
        goals = targets.goals if trained[training_spec(spec)] > 1 else (targets.untrained,)
        points = sum(expected_points(goal.levels, _end(empty, spec).max_saving) for goal in goals)
        values += points * (1 + has_control(spec, config)) * len(config.seeds)
    return steps, dict.fromkeys(expand_tasks(config.tasks), values)


def budget(work: Workload, steps: Sequence[tuple[MethodSpec, int]], dial_values: Mapping[str, int]) -> Budget:
    """Price some work.

    Args:
        work: The text.
        steps: Optimizer steps of each training.
        dial_values: Evaluations of each task.
    """
    asked, unknown = work.asked
    size, whole = work.config.train.batch_size, sum(count for _, count in steps)
    return Budget(
        trainings=sum(count > 0 for _, count in steps),
        steps=whole,
        tokens=whole * size * work.tokens,
        bounded=work.bounded,
        training_flops=sum(count * size * work.training_flops(spec) for spec, count in steps if count),
        dial_values=sum(dial_values.values()),
        evaluation_flops=sum(
            count * (asked[name].reading + asked[name].writing) for name, count in dial_values.items() if name in asked
        ),
        unknown={name: unknown[name] for name in dial_values if name in unknown},
    )


def _end(empty: PreTrainedModel, spec: MethodSpec) -> Any:
    with torch.device("meta"):
        return method_of(spec, Backbone(empty))
