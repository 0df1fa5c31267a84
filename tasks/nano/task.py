"""Defines the nano tasks (entry points `adaptive_bench.tasks`), with their documents and training text."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_bench.data import harness_splits
from adaptive_bench.task import Example, ExampleRequest, Task

from ..template import METRICS
from .items import Item, K, Split, held_out, stream
from .questions import OPTIONS, make_math_problem, make_question
from .stories import Story, make_story

if TYPE_CHECKING:
    from datasets import DatasetDict

TEST_DOCS = 500
_DOCS: dict[Split, int] = {"train": 100, "validation": 500, "test": TEST_DOCS}  # those of `train` are worked examples


def math_docs(**_: Any) -> DatasetDict:
    """Documents of `nano_math` for lm-eval, which also passes the task's metadata (not needed)."""
    return _docs(make_math_problem, _asked)


def qa_docs(**_: Any) -> DatasetDict:
    """Documents of `nano_qa` and `nano_qa_ll`."""
    return _docs(make_question, _asked)


def text_docs(**_: Any) -> DatasetDict:
    """Documents of `nano_text`."""
    return _docs(make_story, lambda story: {"text": story.text})


def _docs(make: Callable[[random.Random], K], fields: Callable[[K], dict[str, Any]]) -> DatasetDict:
    return harness_splits({split: map(fields, held_out(make, split, count)) for split, count in _DOCS.items()})


def _asked(item: Item) -> dict[str, Any]:
    return {
        "question": item.question,
        "statements": list(item.statements),
        "target": item.target,
        "answer": item.answer,
        "right": item.right,
        "steps": item.steps,
    }


# Documents are generated at random, so the first ones stand for all.
_nano_task = partial(Task, folder=Path(__file__).parent, data_folders=(), mixed=True)


def _training(
    make: Callable[[random.Random], K], form: Callable[[K], Example]
) -> Callable[[ExampleRequest], list[Example]]:
    # A run is forecast and planned with the text it trains on: it is generated once a process.
    @lru_cache(maxsize=8)
    def examples(request: ExampleRequest) -> list[Example]:
        return [form(item) for item in islice(stream(make, request.split, request.seed), request.count)]

    return examples


NANO_MATH = _nano_task(
    name="nano_math",
    description="Generated word problems of two or three steps, GSM8K's format",
    kind="generative",
    metrics=METRICS,
    chance=0.0,
    training=_training(make_math_problem, Item.reasoned),
)
NANO_QA = _nano_task(
    name="nano_qa",
    description="Questions of two or three hops through a small world of facts, with reasoning",
    kind="generative",
    metrics=METRICS,
    chance=0.0,
    training=_training(make_question, Item.reasoned),
)
NANO_QA_LL = _nano_task(
    name="nano_qa_ll",
    description="The same questions: which of four true chains of facts is asked for, by log-likelihood",
    kind="loglikelihood",
    metrics=("acc,none",),
    chance=1 / OPTIONS,
    training=_training(make_question, Item.stated),
)
NANO_TEXT = _nano_task(
    name="nano_text",
    description="Bits per byte of held-out stories of the same world; lower is better",
    kind="loglikelihood",
    metrics=("bits_per_byte,none",),
    chance=8.0,
    training=_training(make_story, Story.told),
)
