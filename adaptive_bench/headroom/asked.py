"""A model's answers to the documents of a task, as oracles use them: a score and an answer each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.headroom.askings import Asking
from adaptive_bench.metric import metric_of
from adaptive_bench.progress import Event, Line, Reporter
from adaptive_bench.store.evaluations import Sample
from adaptive_bench.task import DocumentSplit, Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model import AdaptiveModel


@dataclass(frozen=True)
class Asked:
    """What one model made of one asking.

    Attributes:
        saved: Net FLOPs saved, a share of the dense model's, by the ledger.
        score: The headline metric.
        scores: By document, in the metric's unit: the metric is their mean.
        answers: By document, to be compared for equality; `None` where there are none.
        prompts_sha256: Digest of the prompts.
    """

    saved: float
    score: float
    scores: list[float]
    answers: list[str] | None
    prompts_sha256: str

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class Asker:
    """Asks models the questions of one task.

    Attributes:
        metric: Its headline.
        reporter: Passes on what is said once; the many short evaluations are shown as one task.

    Raises:
        UsageError: The task's headline metric is no mean over documents, or nobody knows which way is better.
    """

    def __init__(
        self,
        task: Task,
        tokenizer: PreTrainedTokenizerBase,
        *,
        limit: int | None,
        data_dir: Path | None,
        num_fewshot: int | None,
        batch_size: int,
        reporter: Reporter,
    ) -> None:
        self.task, self.metric = task, metric_of(task.metrics[0])
        if self.metric.better == "unknown" or not (self.metric.is_mean or task.metrics[0].startswith(_BITS)):
            raise UsageError(
                f"Headroom is taken of a metric that is a mean over documents, or of {_BITS}, got {task.metrics[0]!r} "
                f"of the task {task.name!r}. Choose another task."
            )
        self._tokenizer, self.reporter = tokenizer, _LinesOnly(reporter)
        self._how: dict[str, Any] = {
            "limit": limit,
            "data_dir": data_dir,
            "num_fewshot": num_fewshot,
            "batch_size": batch_size,
        }

    @property
    def sign(self) -> int:
        """What makes higher better."""
        return 1 if self.metric.better == "higher" else -1

    def ask(self, model: AdaptiveModel, split: DocumentSplit, asking: Asking) -> Asked:
        """Evaluate a model on the documents of a split."""
        evaluation, samples = evaluate(
            model,
            self._tokenizer,
            self.task.name,
            split=split,
            prefix=asking.prefix,
            seed=asking.seed,
            progress=self.reporter,
            **self._how,
        )
        name = self.task.metrics[0]
        values = _additive(samples) if name.startswith(_BITS) else [one.scores.get(name, math.nan) for one in samples]
        if not values or not np.isfinite(values).all():
            raise UsageError(
                f"Headroom needs a score of every document, but {sum(not math.isfinite(one) for one in values)} of "
                f"{len(values)} of {self.task.name!r} have none for {name!r}. Choose another task."
            )
        return Asked(
            saved=evaluation.savings["net"],
            score=evaluation.scores[name],
            scores=values,
            answers=_answers(samples, name.partition(",")[2]),
            prompts_sha256=(evaluation.data or {})["prompts_sha256"],
        )


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


class _LinesOnly(Reporter):
    """Passes on what is said once; the many short evaluations are shown as one task."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def emit(self, event: Event) -> None:
        if isinstance(event, Line):
            self._reporter.emit(event)
