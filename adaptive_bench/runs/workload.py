"""Prices the work of a run in FLOPs, from sizes alone: those of the model, of its text and of the plan.

Training FLOPs are counted in a dry step of each method (`training.dry_step`), which needs no values. The count includes
the backward pass, gates, heads at every layer, adapters and recomputation. Evaluation is priced as the dense model with
every token executed, because what a method saves is not known before it runs. A multiply-accumulate is two FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel

from adaptive_bench.backbone import Backbone
from adaptive_bench.config import RunConfig
from adaptive_bench.evaluation.documents import ask_only, drawn
from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED, set_writing
from adaptive_bench.evaluation.generation_settings import GenerationSettings
from adaptive_bench.evaluation.lookup import find_task, load_task
from adaptive_bench.evaluation.quiet import quiet
from adaptive_bench.jobs.job import needs_own_process
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.adapters import Adapters
from adaptive_bench.progress import SilentReporter
from adaptive_bench.recipe import TrainRecipe
from adaptive_bench.runs.training_text import training_tasks
from adaptive_bench.spec import MethodSpec
from adaptive_bench.task import ExampleRequest, Task
from adaptive_bench.training import encode_examples
from adaptive_bench.training.dry_step import DryStep, dry_step

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_FLOPS_PER_MAC = 2
_LOOKED_AT = 32  # documents, and training examples, sampled from each task
_LONGEST_DRY = 256  # most tokens of a dry step; FLOPs of longer sequences are scaled in proportion
_training_flops: dict[tuple[Any, ...], float] = {}  # kept, as a run is forecast repeatedly


@dataclass(frozen=True)
class Asked:
    """What a task asks at one dial value: the number of documents, and the FLOPs of reading and of writing.

    Written texts are assumed to be as long as the right answers. In a quick run they are assumed to be as long as
    allowed, because its barely trained models rarely end a text.
    """

    documents: int
    reading: float
    writing: float


class Prices:
    """Prices passes through a model by its shapes; its tensors need no values."""

    def __init__(self, empty: PreTrainedModel) -> None:
        self.empty = empty
        backbone = Backbone(empty)
        costs = backbone.costs
        self._linear = float((costs.attn_q_o + costs.attn_kv + costs.mlp).sum())
        self._pair, self._head = float(costs.pair.sum()), float(backbone.head_macs)
        self.context = backbone.context_length

    def forward(self, tokens: float, answers: float) -> float:
        """FLOPs of reading `tokens` tokens and computing the head at `answers` of them.

        Texts longer than the context are read in windows.
        """
        pairs = tokens * min(tokens, self.context) / 2
        return _FLOPS_PER_MAC * (self._linear * tokens + self._pair * pairs + self._head * answers)

    def trainee(self, spec: MethodSpec, recipe: TrainRecipe) -> AdaptiveModel:
        """The model that a training of the method would train, without values."""
        with torch.device("meta"):  # the gates of a model with 3 B parameters alone would fill 2 GB
            model = AdaptiveModel.build(deepcopy(self.empty), spec)
            if recipe.lora is not None and not model.method.freezes_backbone:
                Adapters(model.backbone_model, recipe.lora)
        model.gradient_checkpointing = recipe.gradient_checkpointing
        return model

    def step(
        self, spec: MethodSpec, recipe: TrainRecipe, length: int, labels: int, *, watched: bool = False
    ) -> DryStep | None:
        """A dry step of a method on one sequence; `None` if the method's code needs values or comes from a plugin."""
        if needs_own_process(spec.name):
            return None
        try:
            return dry_step(self.trainee(spec, recipe), 1, length, labels, watched=watched)
        except Exception:  # noqa: BLE001 - a forecast must not stop a run: the work itself reports what is wrong
            return None

    def training(self, tokens: float, recipe: TrainRecipe) -> float:
        """FLOPs of a forward and a backward pass of the dense model over one sequence."""
        passes = (3 if recipe.lora is None else 2) + recipe.gradient_checkpointing
        return passes * self.forward(tokens, tokens)


class Workload:
    """The lengths of a run's texts, priced on one model.

    Args:
        empty: The model, or another of the same shape.

    Attributes:
        tokens, labels: Mean length of a training sequence, and mean number of its tokens that are predicted.
        longest: Tokens of the longest training sequence sampled.
        asked: What each task asks, by its name.
    """

    def __init__(self, config: RunConfig, empty: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.config, self.prices, self._tokenizer = config, Prices(empty), tokenizer
        most = min(config.train.max_length, self.prices.context)
        tokens, labels, longest = zip(*(list(self._sequences(most)) or [(most, most, most)]), strict=True)
        self.tokens, self.labels, self.longest = fmean(tokens), fmean(labels), max(longest)
        self.asked = cache(self._asked)

    def training_flops(self, spec: MethodSpec) -> float:
        """FLOPs of training a method on one sequence of mean length, scaled up from a shorter one."""
        recipe, shape = self.config.train, self.prices.empty.config.to_json_string()
        about = (spec, shape, self.tokens, self.labels, recipe.lora, recipe.gradient_checkpointing)
        if about not in _training_flops:
            short = min(round(self.tokens), _LONGEST_DRY)
            labels = max(1, min(short - 1, round(short * self.labels / self.tokens)))
            step = self.prices.step(spec, recipe, short, labels)
            dense = self.prices.training(self.tokens, recipe)
            _training_flops[about] = dense if step is None else step.flops * self.tokens / short
        return _training_flops[about]

    def _sequences(self, most: int) -> Iterable[tuple[float, float, int]]:
        """For each task's training text: mean tokens and labels of a sequence, and tokens of the longest one."""
        config = self.config
        for task in training_tasks(config) if config.train.steps else ():
            request = ExampleRequest("train", _LOOKED_AT, config.seeds[0], config.data_dir, most)
            found = [one for one in task.examples(request) if one.prompt]
            if not found:  # documents of a corpus are packed into full sequences
                yield most, most, most
                continue
            encoded = encode_examples(
                found, self._tokenizer, most, SilentReporter(), chat_template=config.chat_template
            )
            lengths = [len(one.token_ids) for one in encoded]
            yield fmean(lengths), fmean(one.loss_tokens for one in encoded), max(lengths)

    def _asked(self, name: str) -> Asked:
        config = self.config
        harness, numbers = asked_documents(find_task(name), config)
        wanted = len(numbers)
        chosen = sorted({numbers[wanted * place // _LOOKED_AT] for place in range(_LOOKED_AT)})
        ask_only(harness, chosen)
        with quiet():
            harness.build_all_requests()
        contexts: dict[tuple[int, str], tuple[float, float]] = {}  # several answers to one context share one pass
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

    def _count(self, text: str) -> int:
        return len(self._tokenizer(text, add_special_tokens=False).input_ids)


def asked_documents(task: Task, config: RunConfig) -> tuple[Any, Sequence[int]]:
    """A task of lm-eval with the settings of a run, and the numbers of the documents that the run asks."""
    how = config.evaluation
    harness: Any = copy(load_task(task, config.data_dir, how.num_fewshot))
    set_writing(harness, how.temperature, how.stop_strings, how.max_new_tokens)
    harness.set_fewshot_seed(FEWSHOT_SEED)
    return harness, drawn(task, len(harness.eval_docs), how.limit)
