"""The endless pretraining text in a seeded order: the world's stories, its facts, sums, and tales in short.

The backbone learns the world and arithmetic from it, and how stories are told. It never sees a question, an answer or a
chain of computations: to follow several facts that are asked for, and to compute from event to event, is left to
fine-tuning.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from .math_problems import make_math_problem
from .qa_questions import make_question
from .splits import stream
from .stories import Story, make_statements, make_story, make_summary, make_sums

# Share of sequences per source.
_SHARES = {"story": 0.2, "statements": 0.22, "sums": 0.28, "summary": 0.3}


def pretraining_texts(seed: int) -> Iterator[Story]:
    """Texts without BOS and EOS. Only the train split, so that no held-out story appears."""
    source = random.Random(f"corpus/{seed}")
    streams: dict[str, Iterator[Story]] = {
        "story": stream(make_story, "train", seed),
        "statements": stream(make_statements, "train", seed),
        "sums": stream(make_sums, "train", seed),
        "summary": stream(make_summary, "train", seed),
    }
    while True:
        (chosen,) = source.choices(tuple(_SHARES), tuple(_SHARES.values()))
        yield next(streams[chosen])


def tokenizer_texts(seed: int, count: int) -> Iterator[str]:
    """Text that the tokenizer is learnt from: stories and training questions, so that every word is one token."""
    for make in (make_math_problem, make_question):
        for item in islice(stream(make, "train", seed), count):
            yield f"{item.prompt} {item.target}"
    yield from (story.text for story in islice(pretraining_texts(seed), 2 * count))
