"""Is a record's recipe what its training did? Asked of runs that were passed on, whose files may have been edited: what
a `config.json` says of the steps, their rates and their text is in the log of every step and in what was counted too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.works import TrainingRun
from adaptive_bench.training.schedule import learning_rate_factor

_Found = tuple[str, Any, Any, str]  # what, by config.json, by the training, where the training says it
_ROUNDING = 1e-9  # of rates, which are worked out from the recipe
_BY_CHANCE = 1e-6  # the likelihood below which two seeds do not draw one order of the text


def check_trainings(whole: Plan) -> None:
    """Refuse recipes that are not what the trainings did, and one training under two seeds.

    Raises:
        EnvironmentProblem: There is one; it is named with both values.
    """
    for training in whole.trainings:
        if training.steps:
            for what, said, found, where in _different(training):
                if said != found:
                    raise EnvironmentProblem(
                        f"A training is what its config.json says, but of {training.spec}, seed {training.seed}, "
                        f"({training.folder.name}) that says {what} {said}, and {where} {found}. Submit the run again."
                    )
    _check_seeds(whole)


def _different(training: TrainingRun) -> Iterator[_Found]:
    recipe, lines = training.content["recipe"], _log(training)
    yield "steps", training.steps, len(lines), "train.jsonl"
    for step, (rate, _) in enumerate(lines):
        factor = learning_rate_factor(recipe["decay"], step, recipe["warmup_steps"], training.steps)
        planned = recipe["learning_rate"] * factor
        if not math.isclose(planned, rate, rel_tol=_ROUNDING):
            yield f"learning_rate, warmup_steps and decay, at step {step + 1} a rate of", planned, rate, "train.jsonl"
    data = training.record.read("data.json") or {}
    sequences, tokens = training.steps * recipe["batch_size"], sum(tokens for _, tokens in lines)
    yield "batch_size, in all steps sequences", sequences, data.get("sequences", sequences), "data.json"
    yield "steps, with predicted tokens in train.jsonl", tokens, data.get("loss_tokens", tokens), "data.json"
    if (asked := training.content.get("target")) is not None:
        priced = training.record.read("target.json") or {}
        for key in ("axis", "saving"):
            yield f"target.{key}", asked[key], priced.get(key), "target.json"


def _log(training: TrainingRun) -> list[tuple[float, int]]:
    """Of each step in order its rate and its tokens."""
    path, found = training.folder / "train.jsonl", []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        step, rate, tokens = (line.get(name) if isinstance(line, dict) else None for name in ("step", "lr", "tokens"))
        if step != number or not isinstance(rate, float) or not isinstance(tokens, int):
            raise EnvironmentProblem(
                f"Each line of a train.jsonl is a step with its lr and tokens, one after the other, but line {number} "
                f"of {training.folder.name} is {text:.120}. Submit the run again."
            )
        found.append((rate, tokens))
    return found


def _check_seeds(whole: Plan) -> None:
    """Seeds draw the order of the training text; one order under two of them is one training that was copied."""
    seeds: dict[str, TrainingRun] = {}
    for training in whole.trainings:
        data = training.record.read("data.json") or {}
        order, examples, sequences = (data.get(key) for key in ("order_sha256", "examples", "sequences"))
        if not (training.steps and order and examples and sequences):
            continue
        other = seeds.setdefault(order, training)
        if other.seed != training.seed and _likelihood(examples, sequences) < _BY_CHANCE:
            raise EnvironmentProblem(
                f"Each seed draws an order of the training text, but by their data.json {other.folder.name}, seed "
                f"{other.seed}, and {training.folder.name}, seed {training.seed}, read it in the same one "
                f"({order:.16}). Submit the run again."
            )


def _likelihood(examples: int, sequences: int) -> float:
    """That two seeds draw the same: of the first sequences, each is one of those that are left."""
    return math.exp(-sum(math.log(examples - place) for place in range(min(examples, sequences, 100))))
