"""nano_math: problems are reproducible, and an independent reading of the question gives the stated answer."""

from __future__ import annotations

import random
import re

import pytest

from adaptive_bench.tasks.nano.questions import make_math_problem

_GAIN = re.compile(r"(\d+) (?:arrive|appear|turn up|come from)")
_LOSS = re.compile(r"(\d+) (?:break|vanish|get lost|go to)")
_COMPARED = re.compile(r"^\w+ has (\d+) (more|fewer) than")
_STEP = re.compile(r"(?:(\w+) )?(\d+) ([-+*]) (\d+) = (\d+)\.")
_FACTORS = {"twice": 2, "three times": 3, "double": 2, "triple": 3}


def _solve(question: str) -> int:
    """Reads the question sentence by sentence."""
    told = re.findall(r"[^.?]+[.?]", question)
    piles: list[int] = []
    for sentence in (part.strip() for part in told[:-1]):
        factor = next((value for word, value in _FACTORS.items() if word in sentence), None)
        if "in each" in sentence:
            count, size = map(int, re.findall(r"\d+", sentence))
            piles.append(count * size)
        elif compared := _COMPARED.search(sentence):
            piles.append(piles[0] + int(compared[1]) * (1 if compared[2] == "more" else -1))
        elif factor and "as many as" in sentence:
            piles.append(piles[0] * factor)
        elif factor:
            piles[-1] *= factor
        elif gain := _GAIN.search(sentence):
            piles[-1] += int(gain[1])
        elif loss := _LOSS.search(sentence):
            piles[-1] -= int(loss[1])
        else:
            piles.append(int(re.fullmatch(r"\w+ has (\d+) \w+\.", sentence)[1]))
    return sum(piles) if "together" in told[-1] else piles[-1]


@pytest.mark.parametrize("seed", range(3))
def test_the_answer_follows_from_the_question(seed: int) -> None:
    source = random.Random(seed)
    for item in (make_math_problem(source) for _ in range(500)):
        assert _solve(item.question) == int(item.answer), item.question
        assert 0 < int(item.answer) < 40


def test_each_step_is_a_true_computation_and_the_last_one_is_the_answer() -> None:
    source = random.Random(7)
    for item in (make_math_problem(source) for _ in range(500)):
        steps = _STEP.findall(item.reasoning)
        assert len(steps) == item.steps in (2, 3)
        for _, left, sign, right, result in steps:
            computed = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}[sign]
            assert computed == int(result)
        assert steps[-1][-1] == item.answer


def test_a_step_names_the_day_or_the_person_that_tells_its_event_alone() -> None:
    source = random.Random(8)
    for item in (make_math_problem(source) for _ in range(500)):
        sentences = re.findall(r"[^.?]+[.?]", item.question)[:-1]
        for label, *_, right, _result in _STEP.findall(item.reasoning):
            if label == "Together":
                continue
            told = [text.strip() for text in sentences if text.strip().startswith((f"On {label} ", f"{label} has "))]
            assert len(told) == 1 if label else "in each" in sentences[0]
            assert right in re.findall(r"\d+", told[0] if label else sentences[0]) or any(
                word in told[0] and right == str(factor) for word, factor in _FACTORS.items()
            )
