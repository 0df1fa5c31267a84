"""Documents for lm-eval: each YAML file here names one of these functions as its `custom_dataset`."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice

from datasets import Dataset

from .item import Item
from .math_problems import make_math_problem
from .qa_questions import make_question, make_two_hop
from .splits import Split, stream

TEST_SEED = 2077
TEST_DOCS = 1000
# Only few-shot examples come from these.
_TRAIN_DOCS = 100


def math_docs(**_metadata: object) -> dict[str, Dataset]:
    """Test and few-shot documents of `nano_math`. lm-eval passes the YAML's metadata, which is not needed here."""
    return _docs(make_math_problem)


def qa_docs(**_metadata: object) -> dict[str, Dataset]:
    """Test and few-shot documents of `nano_qa`."""
    return _docs(make_question)


def qa_stated_docs(**_metadata: object) -> dict[str, Dataset]:
    """Test and few-shot documents of `nano_qa_ll`."""
    return _docs(make_two_hop)


def _docs(make: Callable[[random.Random], Item]) -> dict[str, Dataset]:
    return {"train": _split(make, "train", _TRAIN_DOCS), "test": _split(make, "test", TEST_DOCS)}


def _split(make: Callable[[random.Random], Item], split: Split, count: int) -> Dataset:
    items = islice(stream(make, split, TEST_SEED), count)
    return Dataset.from_list(
        [
            {
                "question": item.question,
                "asked": item.asked,
                "statements": list(item.statements),
                "target": item.target,
                "answer": item.answer,
                "right": item.right,
                "steps": item.steps,
            }
            for item in items
        ]
    )
