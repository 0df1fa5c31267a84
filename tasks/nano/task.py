"""Defines the nano tasks (entry points `adaptive_bench.tasks`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from adaptive_bench.task import Example, ExampleRequest, Task

from ..template import METRICS
from .items import Item, K, stream
from .questions import OPTIONS, make_math_problem, make_question
from .stories import Story, make_story

_FOLDER = Path(__file__).parent


def _training(
    make: Callable[[random.Random], K], form: Callable[[K], Example]
) -> Callable[[ExampleRequest], list[Example]]:
    def examples(request: ExampleRequest) -> list[Example]:
        return [form(item) for item in islice(stream(make, request.split, request.seed), request.count)]

    return examples


NANO_MATH = Task(
    name="nano_math",
    description="Generated word problems of two or three steps, GSM8K's format",
    kind="generative",
    folder=_FOLDER,
    metrics=METRICS,
    chance=0.0,
    training=_training(make_math_problem, Item.reasoned),
    data_folders=(),
    mixed=True,
)
NANO_QA = Task(
    name="nano_qa",
    description="Questions of two or three hops through a small world of facts, with reasoning",
    kind="generative",
    folder=_FOLDER,
    metrics=METRICS,
    chance=0.0,
    training=_training(make_question, Item.reasoned),
    data_folders=(),
    mixed=True,
)
NANO_QA_LL = Task(
    name="nano_qa_ll",
    description="The same questions: which of four true chains of facts is asked for, by log-likelihood",
    kind="loglikelihood",
    folder=_FOLDER,
    metrics=("acc,none",),
    chance=1 / OPTIONS,
    training=_training(make_question, Item.stated),
    data_folders=(),
    mixed=True,
)
NANO_TEXT = Task(
    name="nano_text",
    description="Bits per byte of held-out stories of the same world; lower is better",
    kind="loglikelihood",
    folder=_FOLDER,
    metrics=("bits_per_byte,none",),
    chance=8.0,
    training=_training(make_story, Story.told),
    data_folders=(),
    mixed=True,
)
