"""Asks a task's documents for the oracles: scores and answers of each document, and the tokens of its texts.

Greedy decoding gives the same answer to the same prompt, so a score that was chosen because it is high has to be
measured again with another prompt: with other worked examples if the task has some, else with a line break before it.
A text is a prompt followed by what the full model writes, or by the given answer of a log-likelihood task.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from accelerate.utils import set_seed
from torch import Tensor

from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.batches import batches
from adaptive_bench.evaluation.documents import ask_only, drawn
from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED, evaluate
from adaptive_bench.evaluation.language_model import AdaptiveLM
from adaptive_bench.evaluation.lookup import find_task, load_task
from adaptive_bench.evaluation.quiet import quiet
from adaptive_bench.metric import Metric, metric_of
from adaptive_bench.model.generation import padded
from adaptive_bench.progress import Event, Line, Reporter
from adaptive_bench.store.evaluation import Sample
from adaptive_bench.task import DocumentSplit, Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model import AdaptiveModel


class Asking(NamedTuple):
    """One way to ask all documents of a task.

    Attributes:
        prefix: Text before every prompt.
        seed: Seed with which worked examples are drawn.
    """

    prefix: str = ""
    seed: int = FEWSHOT_SEED


def another_asking(num_fewshot: int) -> Asking:
    """Another asking of the same questions, which changes nothing but luck."""
    return Asking(seed=FEWSHOT_SEED + 1) if num_fewshot else Asking("\n")


def why_asked_once(output_type: str, num_fewshot: int, encode: Callable[[str], Any]) -> str | None:
    """Why a task cannot be asked in another way, or `None`.

    Args:
        output_type: lm-eval's `output_type` of the task.
        num_fewshot: Number of worked examples.
        encode: The tokenizer's function that encodes a text.
    """
    if output_type == "loglikelihood_rolling":
        return "it scores whole texts and has no prompt that could be asked in another way"
    if not num_fewshot and encode("\nA") == encode("A"):
        return "the tokenizer drops white space before a prompt, the only thing that another asking would change"
    return None


@dataclass(frozen=True)
class Asked:
    """The result of one model in one asking.

    Attributes:
        saved: Net FLOPs saved according to the ledger, as a share of the dense model's.
        score: The headline metric.
        scores: Score of each document in the metric's unit; the metric is their mean.
        answers: Answer of each document, compared for equality; `None` if the task has no answers.
    """

    saved: float
    score: float
    scores: list[float]
    answers: list[str] | None

    def agreement(self, other: Asked) -> list[bool] | None:
        """For each document, whether both models gave the same answer; `None` if answers cannot be compared."""
        if self.answers is None or other.answers is None:
            return None
        return [mine == theirs for mine, theirs in zip(self.answers, other.answers, strict=True)]


class LinesOnly(Reporter):
    """Passes on lines but no progress, so that many short evaluations are shown as one task."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def emit(self, event: Event) -> None:
        if isinstance(event, Line):
            self._reporter.emit(event)


@dataclass(frozen=True)
class Asker:
    """Asks models the questions of one task.

    Attributes:
        task: The task.
        tokenizer: Tokenizer of the models.
        reporter: Receives lines.
        how: Arguments of `evaluate`: `limit`, `data_dir`, `num_fewshot`, `batch_size`.

    Raises:
        UsageError: The task's headline metric is not a mean over documents, or it is unknown which way is better.
    """

    task: Task
    tokenizer: PreTrainedTokenizerBase
    reporter: Reporter
    how: Mapping[str, Any]

    def __post_init__(self) -> None:
        name = self.task.metrics[0]
        if self.metric.better == "unknown" or not (self.metric.is_mean or name.startswith(_BITS)):
            raise UsageError(
                f"Headroom is taken of a metric that is a mean over documents, or of {_BITS}, got {name!r} of the task "
                f"{self.task.name!r}. Choose another task."
            )

    @property
    def metric(self) -> Metric:
        """The task's headline metric."""
        return metric_of(self.task.metrics[0])

    @property
    def sign(self) -> int:
        """Factor on scores, 1 or -1, after which higher is better."""
        return 1 if self.metric.better == "higher" else -1

    def ask(self, model: AdaptiveModel, split: DocumentSplit, asking: Asking) -> Asked:
        """Evaluate a model on the documents of a split."""
        way: dict[str, Any] = {"split": split, **asking._asdict(), **self.how}
        evaluation, samples = evaluate(model, self.tokenizer, self.task.name, progress=LinesOnly(self.reporter), **way)
        name = self.task.metrics[0]
        values = _additive(samples) if name.startswith(_BITS) else [one.scores.get(name, math.nan) for one in samples]
        if not values or not np.isfinite(values).all():
            raise UsageError(
                f"Headroom needs a score of every document, but {sum(not math.isfinite(one) for one in values)} of "
                f"{len(values)} of {self.task.name!r} have none for {name!r}. Choose another task."
            )
        answers = _answers(samples, name.partition(",")[2])
        return Asked(evaluation.savings["net"], evaluation.scores[name], values, answers)


_BITS = "bits_per_byte"


def _additive(samples: Sequence[Sample]) -> list[float]:
    """Bits of each document divided by the mean size of all, so that their mean is bits per byte.

    This holds for any choice of model per document.
    """
    sizes = [len(str(one.target).encode()) for one in samples]
    mean_size = sum(sizes) / len(sizes)
    return [-float(one.output) / math.log(2) / mean_size for one in samples]


def _answers(samples: Sequence[Sample], filter_name: str) -> list[str] | None:
    if all(isinstance(one.output, str) for one in samples):
        return [one.answers.get(filter_name, str(one.output)) for one in samples]
    return [str(one.output) for one in samples] if all(isinstance(one.output, int) for one in samples) else None


@dataclass(frozen=True)
class TaskText:
    """One request of a task.

    Attributes:
        prompt: Tokens before the answer, at least one.
        answer: Tokens of the answer: written greedily by the full model, or given (log-likelihood tasks).
    """

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def read(self) -> tuple[int, ...]:
        """The tokens that a model reads: all but the last one, which is only predicted."""
        return self.prompt + self.answer[:-1]


@dataclass(frozen=True)
class TextBatch:
    """Texts as one batch of B rows, padded on the right.

    Attributes:
        input_ids, attention_mask: [B, S].
        writing: Boolean [B, S], positions that predict tokens of the answer.
    """

    input_ids: Tensor
    attention_mask: Tensor
    writing: Tensor


def text_batches(texts: Sequence[TaskText], rows: int, device: torch.device) -> Iterator[TextBatch]:
    """Texts in batches of similar length, longest first."""
    for some in batches(texts, rows, length=lambda one: len(one.read)):
        input_ids, mask = padded([one.read for one in some], device, left=False)
        places = torch.arange(input_ids.shape[1], device=device)
        starts = torch.tensor([[len(one.prompt) - 1] for one in some], device=device)
        yield TextBatch(input_ids, mask, (places >= starts) & mask.bool())


def collect_texts(
    model: AdaptiveModel,
    tokenizer: PreTrainedTokenizerBase,
    task_name: str,
    *,
    split: DocumentSplit,
    limit: int,
    data_dir: Path | None,
    num_fewshot: int | None,
    batch_size: int,
    reporter: Reporter,
) -> list[TaskText]:
    """The texts of the documents of a task, as many as `limit` allows, as `evaluate` would ask them.

    Args:
        model: Writes the answers of generative tasks; it skips nothing.
    """
    requests = requests_of(task_name, split=split, limit=limit, data_dir=data_dir, num_fewshot=num_fewshot)
    label = f"{task_name}: texts of the full model"
    collector = _Collector(model, tokenizer, batch_size=batch_size, label=label, reporter=reporter)
    for kind in sorted({request.request_type for request in requests}):
        getattr(collector, kind)([request for request in requests if request.request_type == kind])
    return [text for text in collector.texts if text.answer]


def requests_of(
    task_name: str, *, split: DocumentSplit, limit: int, data_dir: Path | None, num_fewshot: int | None
) -> list[Any]:
    """lm-eval's requests for the documents of a task, as many as `limit` allows, as `evaluate` would make them."""
    task = find_task(task_name)
    set_seed(FEWSHOT_SEED)
    random.seed(0)
    with quiet():
        harness_task: Any = load_task(task, data_dir, num_fewshot, split)
        harness_task.set_fewshot_seed(FEWSHOT_SEED)
        ask_only(harness_task, drawn(task, len(harness_task.eval_docs), limit))
        harness_task.build_all_requests()
    return list(harness_task.instances)


class _Collector(AdaptiveLM):
    """Keeps the tokens of requests instead of scoring them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.texts: list[TaskText] = []

    def _scores(self, requests: Any, documents: Any) -> list[tuple[float, bool]]:
        for _, prompt, answer in requests:
            cut = len(prompt) + len(answer) - (self.context_length + 1)
            self.texts.append(TaskText(tuple(prompt[max(0, cut) :]), tuple(answer)))
        return [(0.0, False)] * len(requests)

    def _write_refilled(self, settings: Any, members: Any, task: Any) -> list[list[int]]:
        return self._kept(members, super()._write_refilled(settings, members, task))

    def _write_fixed(self, settings: Any, members: Any, task: Any) -> list[list[int]]:
        return self._kept(members, super()._write_fixed(settings, members, task))

    def _kept(self, members: Any, written: list[list[int]]) -> list[list[int]]:
        for member, tokens in sorted(zip(members, written, strict=True), key=lambda one: one[0].place):
            self.texts.append(TaskText(tuple(member.token_ids), tuple(tokens)))
        return written
