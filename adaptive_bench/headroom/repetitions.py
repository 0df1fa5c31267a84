"""A model's answers to the documents of a task, as oracles use them: a score and an answer each, asked once or again.

Greedy decoding gives the same answer to the same prompt, so a score that is chosen for being high has to be measured on
another prompt: with other worked examples where the task has some, else with other white space before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED, evaluate
from adaptive_bench.metric import Metric, metric_of
from adaptive_bench.progress import Event, Line, Reporter
from adaptive_bench.store.evaluations import Sample
from adaptive_bench.task import DocumentSplit, Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model import AdaptiveModel


class Asking(NamedTuple):
    """One way to ask all documents of a task.

    Attributes:
        prefix: Text before every prompt.
        seed: Worked examples are drawn with it.
    """

    prefix: str = ""
    seed: int = FEWSHOT_SEED


def another_asking(num_fewshot: int) -> Asking:
    """Of the same questions, in a way that changes nothing but luck."""
    return Asking(seed=FEWSHOT_SEED + 1) if num_fewshot else Asking("\n")


def why_asked_once(output_type: str, num_fewshot: int, encode: Callable[[str], Any]) -> str | None:
    """Why a task cannot be asked in another way, or `None`.

    Args:
        output_type: lm-eval's word for what it asks of a model.
        encode: The model's tokenizer.
    """
    if output_type == "loglikelihood_rolling":
        return "it scores whole texts and has no prompt that could be asked in another way"
    if not num_fewshot and encode("\nA") == encode("A"):
        return "the tokenizer drops white space before a prompt, the only thing that another asking would change"
    return None


@dataclass(frozen=True)
class Asked:
    """What one model made of one asking.

    Attributes:
        saved: Net FLOPs saved, a share of the dense model's, by the ledger.
        score: The headline metric.
        scores: By document, in the metric's unit: the metric is their mean.
        answers: By document, to be compared for equality; `None` where there are none.
    """

    saved: float
    score: float
    scores: list[float]
    answers: list[str] | None

    def agreement(self, other: Asked) -> list[bool] | None:
        """By document whether two gave the same answer; `None` where answers cannot be compared."""
        if self.answers is None or other.answers is None:
            return None
        return [mine == theirs for mine, theirs in zip(self.answers, other.answers, strict=True)]


class LinesOnly(Reporter):
    """Passes on what is said once; the many short evaluations are shown as one task."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def emit(self, event: Event) -> None:
        if isinstance(event, Line):
            self._reporter.emit(event)


@dataclass(frozen=True)
class Asker:
    """Asks models the questions of one task.

    Attributes:
        how: Arguments of `evaluate`: `limit`, `data_dir`, `num_fewshot`, `batch_size`.

    Raises:
        UsageError: The task's headline metric is no mean over documents, or nobody knows which way is better.
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
        """The headline."""
        return metric_of(self.task.metrics[0])

    @property
    def sign(self) -> int:
        """What makes higher better."""
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
    """Bits of each document over the mean size of all: their mean is bits per byte, whichever model read which."""
    sizes = [len(str(one.target).encode()) for one in samples]
    mean_size = sum(sizes) / len(sizes)
    return [-float(one.output) / math.log(2) / mean_size for one in samples]


def _answers(samples: Sequence[Sample], filter_name: str) -> list[str] | None:
    if all(isinstance(one.output, str) for one in samples):
        return [one.answers.get(filter_name, str(one.output)) for one in samples]
    return [str(one.output) for one in samples] if all(isinstance(one.output, int) for one in samples) else None
