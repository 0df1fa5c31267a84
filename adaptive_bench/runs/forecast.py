"""Forecasts the FLOPs and the time of a run's work, from sizes alone: those of the model, of its text and of the plan.

Training FLOPs are counted in a dry step of each method (`dry_step`), which needs no values. The count includes the
backward pass, gates, heads at every layer, adapters and recomputation. Evaluation is priced as the dense model with
every token executed, because what a method saves is not known before it runs. A multiply-accumulate is two FLOPs.

Time rests on the means in earlier records of this machine, else on the FLOPs at its measured rate, else on a rough
guess. It is an order of magnitude, not a promise; the run corrects it as it goes.
"""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from adaptive_bench.backbone import Backbone
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.evaluation.documents import ask_only, drawn
from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED, set_writing
from adaptive_bench.evaluation.generation_settings import GenerationSettings
from adaptive_bench.evaluation.loading import load_task, quiet
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.jobs.job import needs_own_process
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.adapters import Adapters
from adaptive_bench.progress import SilentReporter
from adaptive_bench.recipe import TrainRecipe
from adaptive_bench.runs.backbone_source import find_device
from adaptive_bench.runs.measured_settings import few_layers, seconds, with_values
from adaptive_bench.runs.run_plan import Plan
from adaptive_bench.runs.training_text import training_tasks
from adaptive_bench.runs.work_units import DialEvaluation, TrainingRun
from adaptive_bench.spec import MethodSpec, method_name
from adaptive_bench.store.records import Record
from adaptive_bench.task import ExampleRequest, Task
from adaptive_bench.training import resume
from adaptive_bench.training.cost import DryStep, dry_step
from adaptive_bench.training.encoding import encode_examples
from adaptive_bench.training.loop import RESUME_FOLDER

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_FLOPS_PER_MAC = 2
_LOOKED_AT = 32  # documents, and training examples, sampled from each task
_LONGEST_DRY = 256  # most tokens of a dry step; FLOPs of longer sequences are scaled in proportion
_training_flops: dict[tuple[Any, ...], float] = {}  # kept, as a run is forecast repeatedly
# At most, of the text and of the model that rates are measured with, and for how long: a forecast is rough.
_TOKENS, _LAYERS, _WORDS, _TIMED_S = 256, 4, 8192, 0.1
# Without records and rates: what the nano model takes on a CPU core.
_ROUGH_SEQUENCE_S, _ROUGH_DOCUMENT_S, _ROUGH_DOCUMENTS = 0.01, 0.01, 1000
_CALIBRATIONS = 2  # for each measured point, because some dial values are only probed on held-out text


_rates: dict[tuple[Any, ...], float] = {}  # FLOPs a second, measured once, so that repeated forecasts of a run agree


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
        pairs = tokens * min(tokens, self.context) / 2  # a token sees those before it: half of the square
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
        # A backward pass costs two forward: gradients of states, and of weights, of which adapters have few.
        passes = (3 if recipe.lora is None else 2) + recipe.gradient_checkpointing
        return passes * self.forward(tokens, tokens)


class Workload:
    """The lengths of a run's texts, priced on one model and one process of this machine.

    Of the training sequences that were sampled, `tokens` is the mean length, `labels` the mean number of tokens that
    are predicted, and `longest` the length of the longest. `asked` gives what a task asks, by its name. `jobs`
    processes will work at once, each with an equal share of the cores.
    """

    def __init__(
        self, config: RunConfig, empty: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, jobs: int = 1
    ) -> None:
        self.config, self.prices, self._tokenizer, self._jobs = config, Prices(empty), tokenizer, jobs
        most = min(config.train.max_length, self.prices.context)
        tokens, labels, longest = zip(*(list(self._sequences(most)) or [(most, most, most)]), strict=True)
        self.tokens, self.labels, self.longest = fmean(tokens), fmean(labels), max(longest)
        self.asked = cache(self._asked)

    def asking(self, config: RunConfig) -> Workload:
        """The same training texts, with tasks asked as another config says."""
        other = copy(self)
        other.config, other.asked = config, cache(other._asked)
        return other

    def training_flops(self, spec: MethodSpec) -> float:
        """FLOPs of training a method on one sequence of mean length, scaled up from a shorter one."""
        recipe, shape = self.config.train, self.prices.empty.config.to_json_string()
        about = (spec, shape, self.tokens, self.labels, recipe.lora, recipe.gradient_checkpointing)
        if about not in _training_flops:
            short = min(round(self.tokens), _LONGEST_DRY)
            # The same share of the tokens is predicted; the first one never is.
            labels = max(1, min(short - 1, round(short * self.labels / self.tokens)))
            step = self.prices.step(spec, recipe, short, labels)
            dense = self.prices.training(self.tokens, recipe)
            _training_flops[about] = dense if step is None else step.flops * self.tokens / short
        return _training_flops[about]

    def sequence_s(self, spec: MethodSpec) -> float:
        """Seconds of training a method on one sequence."""
        bf16 = self.config.train.precision == "bf16"
        return self.training_flops(spec) / self._rate(1, _TOKENS, bf16=bf16, backward=True)

    @property
    def reading_s(self) -> float:
        """Seconds of one pass of the dense model over a training sequence."""
        return self.prices.forward(self.tokens, 1) / self._rate(1, _TOKENS)

    def document_s(self, task: str) -> float:
        """Seconds of evaluating the dense model on one document."""
        asked, how = self.asked(task), self.config.evaluation
        # One token of every text at once. Few documents make a smaller batch, and a step with fewer texts is hardly
        # shorter.
        rows = min(how.batch_size, how.limit or how.batch_size)
        taken_s = asked.reading / self._rate(1, _TOKENS) + asked.writing / self._rate(rows, 1)
        return taken_s / max(1, asked.documents)

    def _rate(self, rows: int, length: int, *, bf16: bool = False, backward: bool = False) -> float:
        """FLOPs a second of passes over `rows` texts, with this process's share of the cores."""
        shape, device = self.prices.empty.config, find_device(self.config.device)
        threads = torch.get_num_threads()
        torch.set_num_threads(max(1, threads // self._jobs))
        try:
            about = shape.to_json_string(), device, rows, length, bf16, backward, torch.get_num_threads()
            if about not in _rates:
                _rates[about] = measure_rate(shape, device, rows, length, bf16=bf16, backward=backward)
        finally:
            torch.set_num_threads(threads)
        return _rates[about]

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
        # Evenly from all of them; each once if there are fewer.
        chosen = sorted({numbers[wanted * place // _LOOKED_AT] for place in range(_LOOKED_AT)})
        ask_only(harness, chosen)
        with quiet():
            harness.build_all_requests()
        contexts: dict[tuple[int, str], tuple[float, float]] = {}  # several answers to one context share one pass
        for request in harness.instances:
            # A text that is scored as a whole has no context.
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
            # Written tokens see all before them, so their price is that of the longer text minus that of what was read.
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


def measure_rate(
    shape: PretrainedConfig, device: torch.device, rows: int, length: int, *, bf16: bool, backward: bool
) -> float:
    """Time passes of a plain model of this width, with few layers and a small vocabulary, over `rows` texts of `length`
    tokens (at most the model's context), as `seconds` does; returns FLOPs a second.
    """
    empty = few_layers(shape, _LAYERS, _WORDS)
    prices, model = Prices(empty), with_values(empty, device)
    length = min(length, prices.context)
    flops = rows * prices.forward(length, length) * (3 if backward else 1)  # a backward pass costs two forward
    return flops / seconds(model, (rows, length), _TIMED_S, bf16=bf16, backward=backward)


_UNREADABLE = (ArithmeticError, AttributeError, EnvironmentProblem, LookupError, OSError, TypeError, ValueError)


@dataclass(frozen=True)
class Trait:
    """What is known of a method on this model before it is trained."""

    end: float = 1.0  # largest share of tokens that the dial can save
    calibrates: bool = False  # each dial value has to be calibrated


class Estimator:
    """Estimates the seconds of trainings and evaluations: from the means of the records that this machine made in the
    output folder, else from the run's work on this machine, else by guess. Traits are by method spec.
    """

    def __init__(self, out: Path, work: Workload | None = None, traits: Mapping[str, Trait] | None = None) -> None:
        self._out, self.work, self._traits = out, work, traits or {}

    def training(self, training: TrainingRun) -> float:
        """Seconds of a training's remaining steps."""
        left = steps_left(training)
        return self._sequence_s(training) * left * training.content["recipe"]["batch_size"] if left else 0.0

    def point(self, sweep: DialEvaluation) -> float:
        """Seconds of an evaluation at one dial value."""
        limit, task = sweep.config.evaluation.limit, sweep.task
        documents = _ROUGH_DOCUMENTS if self.work is None else self.work.asked(task).documents
        known = self._means.get(("document", sweep.training.content["backbone"], sweep.spec.name, task))
        if known is None:
            known = _ROUGH_DOCUMENT_S if self.work is None else self.work.document_s(task)
        return min(limit or documents, documents) * known

    def calibration(self, sweep: DialEvaluation) -> float:
        """Seconds of calibrating one dial value."""
        # Thresholds are set in one pass over the text and checked in another; shuffling collects decisions in one more.
        passes = 2 * self._trait(sweep).calibrates + bool(sweep.variant)
        # A step of training costs three passes, but may be in bf16, which no pass of an evaluation is.
        read_s = self._sequence_s(sweep.training) / 3 if self.work is None else self.work.reading_s
        return passes * sweep.config.evaluation.calibration_examples * read_s

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
        known = self._means.get(("sequence", training.content["backbone"], training.spec.name))
        if known is None:
            known = _ROUGH_SEQUENCE_S if self.work is None else self.work.sequence_s(training.spec)
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
