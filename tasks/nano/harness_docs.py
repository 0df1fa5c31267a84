"""Documents of the nano tasks for lm-eval: each YAML file names one of these functions as its `custom_dataset`."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from typing import Any

from datasets import Dataset

from .items import Item, K, Split, distinct, stream
from .questions import make_math_problem, make_question
from .stories import make_story

TEST_SEED = 3089
TEST_DOCS = 500
_VALIDATION_DOCS = 500
_TRAIN_DOCS = 100  # used for few-shot examples only


def math_docs(**_metadata: object) -> dict[str, Dataset]:
    """Validation, test and few-shot documents of `nano_math`. lm-eval also passes metadata, which is not needed."""
    return _docs(make_math_problem, _asked)


def qa_docs(**_metadata: object) -> dict[str, Dataset]:
    """Validation, test and few-shot documents of `nano_qa` and `nano_qa_ll`."""
    return _docs(make_question, _asked)


def text_docs(**_metadata: object) -> dict[str, Dataset]:
    """Validation and test documents of `nano_text`."""
    return _docs(make_story, lambda story: {"text": story.text})


def held_out(make: Callable[[random.Random], K], split: Split, count: int) -> list[K]:
    """The first `count` distinct items of a split; nothing is tuned on those of `test`."""
    return list(islice(distinct(stream(make, split, TEST_SEED)), count))


def _docs(make: Callable[[random.Random], K], fields: Callable[[K], dict[str, Any]]) -> dict[str, Dataset]:
    sizes: dict[Split, int] = {"train": _TRAIN_DOCS, "validation": _VALIDATION_DOCS, "test": TEST_DOCS}
    return {
        split: Dataset.from_list([fields(item) for item in held_out(make, split, count)])
        for split, count in sizes.items()
    }


def _asked(item: Item) -> dict[str, Any]:
    return {
        "question": item.question,
        "statements": list(item.statements),
        "target": item.target,
        "answer": item.answer,
        "right": item.right,
        "steps": item.steps,
    }
