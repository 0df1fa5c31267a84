"""The texts of a task as tokens: every prompt with what the full model writes, or with the answers that are given."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import set_seed
from torch import Tensor

from adaptive_bench.evaluation.batches import batches
from adaptive_bench.evaluation.drawn import ask_only, drawn
from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED
from adaptive_bench.evaluation.language_model import AdaptiveLM
from adaptive_bench.evaluation.lookup import find_task, load_task
from adaptive_bench.evaluation.quiet import quiet
from adaptive_bench.model.generation import padded
from adaptive_bench.progress import Reporter
from adaptive_bench.task import DocumentSplit

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model import AdaptiveModel


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
        """The tokens a model is fed: the last one is only predicted."""
        return self.prompt + self.answer[:-1]


@dataclass(frozen=True)
class TextBatch:
    """Texts as one batch of B rows, padded on the right.

    Attributes:
        input_ids, attention_mask: [B, S].
        writing: Boolean [B, S], positions that predict the answer.
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
    """The texts of the documents of a task that a limit leaves, in their order, as `evaluate` would ask them.

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
    """What lm-eval asks of a model on the documents of a task that a limit leaves, as `evaluate` would ask it."""
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
