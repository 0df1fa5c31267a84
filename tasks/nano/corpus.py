"""The endless pretraining text: both tasks' train splits and the facts of the world, in a seeded order."""

from __future__ import annotations

import random
from collections.abc import Iterator

from .math_problems import make_math_problem
from .qa_questions import fact_statements, make_one_hop, make_question
from .splits import stream
from .world import world

# Share of sequences per source.
_SHARES = {"math": 0.55, "qa": 0.30, "qa_direct": 0.10, "facts": 0.05}
_STATEMENTS_PER_SEQUENCE = 4


def training_texts(seed: int) -> Iterator[str]:
    """Sequences without BOS and EOS. Items of the calibration and test splits never appear."""
    source = random.Random(f"corpus/{seed}")
    math, qa = stream(make_math_problem, "train", seed), stream(make_question, "train", seed)
    direct = stream(make_one_hop, "train", seed)
    statements = fact_statements(world())
    while True:
        match source.choices(tuple(_SHARES), tuple(_SHARES.values()))[0]:
            case "math":
                example = next(math).reasoned()
            case "qa":
                example = next(qa).reasoned()
            case "qa_direct":
                example = next(direct).direct()
            case _:
                yield " ".join(source.sample(statements, _STATEMENTS_PER_SEQUENCE))
                continue
        yield example.prompt + example.completion
