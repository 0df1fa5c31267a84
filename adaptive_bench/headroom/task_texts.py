"""Collects the texts of a task's documents as tokens, each a prompt with its answer.

The answer is what the full model writes, or the given one of a log-likelihood task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaptive_bench.evaluation.evaluate import asked_task
from adaptive_bench.evaluation.lm_eval_model import AdaptiveLM
from adaptive_bench.evaluation.loading import quiet
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.evaluation.scoring import batches
from adaptive_bench.model.generation import padded
from adaptive_bench.progress import Reporter
from adaptive_bench.task import DocumentSplit

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model import AdaptiveModel


@dataclass(frozen=True)
class TaskText:
    """One request of a task: the tokens of its prompt, at least one, and of its answer, written greedily or given."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def read(self) -> tuple[int, ...]:
        """The tokens that a model reads: all but the last one, which is only predicted."""
        return self.prompt + self.answer[:-1]


@dataclass(frozen=True)
class TextBatch:
    """Texts as one batch [B, S], padded on the right; `writing` marks positions that predict tokens of the answer."""

    input_ids: Tensor
    attention_mask: Tensor
    writing: Tensor


def text_batches(texts: Sequence[TaskText], rows: int, device: torch.device) -> Iterator[TextBatch]:
    """Texts in batches of similar length, longest first."""
    for some in batches(texts, rows, length=lambda one: len(one.read)):
        input_ids, mask = padded([one.read for one in some], device, left=False)
        places = torch.arange(input_ids.shape[1], device=device)
        # [B, 1]: the last token of a prompt predicts the first of its answer.
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
    """The texts of the documents of a task, as many as `limit` allows, as `evaluate` would ask them; the model, which
    skips nothing, writes the answers of generative tasks.
    """
    requests = requests_of(task_name, split=split, limit=limit, data_dir=data_dir, num_fewshot=num_fewshot)
    label = f"{task_name}: texts of the full model"
    collector = _Collector(model, tokenizer, batch_size=batch_size, label=label, reporter=reporter)
    # lm-eval names a type of request like the method of a model that answers it.
    for kind in sorted({request.request_type for request in requests}):
        getattr(collector, kind)([request for request in requests if request.request_type == kind])
    return [text for text in collector.texts if text.answer]


def requests_of(
    task_name: str, *, split: DocumentSplit, limit: int, data_dir: Path | None, num_fewshot: int | None
) -> list[Any]:
    """lm-eval's requests for the documents of a task, as many as `limit` allows, as `evaluate` would make them."""
    harness_task: Any = asked_task(find_task(task_name), data_dir, num_fewshot, split, limit)
    with quiet():
        harness_task.build_all_requests()
    return list(harness_task.instances)


class _Collector(AdaptiveLM):
    """Keeps the tokens of requests instead of scoring them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.texts: list[TaskText] = []

    def _scores(self, requests: Any, documents: Any) -> list[tuple[float, bool]]:
        for _, prompt, answer in requests:
            # As scoring does: the last token is predicted and not read, so the context holds one more.
            cut = len(prompt) + len(answer) - (self.context_length + 1)
            self.texts.append(TaskText(tuple(prompt[max(0, cut) :]), tuple(answer)))
        # lm-eval wants an answer to each request; nobody reads these.
        return [(0.0, False)] * len(requests)

    def _write(self, settings: Any, members: Any, task: Any, fixed: bool) -> list[list[int]]:
        written = super()._write(settings, members, task, fixed)
        # Prompts come longest first, but texts shall have the order of the documents.
        for member, tokens in sorted(zip(members, written, strict=True), key=lambda one: one[0].place):
            self.texts.append(TaskText(tuple(member.token_ids), tuple(tokens)))
        return written
