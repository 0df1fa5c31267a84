"""The endless pretraining text: both tasks' train splits and the facts of the world, in a seeded order."""

from __future__ import annotations

import random
from collections.abc import Iterator

from adaptive_bench.task import Example

from .math_problems import make_math_problem
from .qa_questions import fact_statements, make_question, make_two_hop
from .splits import stream
from .world import world

# Share of sequences per source.
_SHARES = {"math": 0.60, "qa": 0.27, "stated": 0.08, "facts": 0.05}
_STATEMENTS_PER_SEQUENCE = 4


def training_examples(seed: int) -> Iterator[Example]:
    """Sequences without BOS and EOS; facts have an empty prompt. Calibration and test items never appear."""
    source = random.Random(f"corpus/{seed}")
    math, qa = stream(make_math_problem, "train", seed), stream(make_question, "train", seed)
    stated = stream(make_two_hop, "train", seed)
    statements = fact_statements(world())
    while True:
        match source.choices(tuple(_SHARES), tuple(_SHARES.values()))[0]:
            case "math":
                yield next(math).reasoned()
            case "qa":
                yield next(qa).reasoned()
            case "stated":
                yield next(stated).stated()
            case _:
                yield Example(prompt="", completion=" ".join(source.sample(statements, _STATEMENTS_PER_SEQUENCE)))
