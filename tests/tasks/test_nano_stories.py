"""The stories state the world as it is and compute rightly, and hold nothing of what fine-tuning has to teach."""

from __future__ import annotations

import random
import re
from itertools import islice, pairwise

import pytest
from nano_pretraining import pretraining_texts

from adaptive_bench.tasks.nano.items import split_of
from adaptive_bench.tasks.nano.stories import make_statements, make_story, make_sums
from adaptive_bench.tasks.nano.world import STATEMENT, world

_COMPUTATION = re.compile(r"(\d+) ([-+*]) (\d+) = (\d+)")


@pytest.mark.parametrize("make", (make_story, make_sums))
def test_every_computation_is_true(make: object) -> None:
    source = random.Random(1)
    for text in (make(source).text for _ in range(500)):
        found = _COMPUTATION.findall(text)
        assert found
        for left, sign, right, result in found:
            assert {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}[sign] == int(
                result
            )
            assert 0 < int(result) <= 40


@pytest.mark.parametrize("make", (make_story, make_statements))
def test_every_stated_fact_is_true(make: object) -> None:
    facts = world().facts
    source = random.Random(2)
    patterns = {
        relation: re.compile(statement.format(subject=r"([A-Z]\w+)", value=r"(\w+)").replace(".", r"\."))
        for relation, statement in STATEMENT.items()
    }
    stated = 0
    for text in (make(source).text for _ in range(300)):
        for relation, pattern in patterns.items():
            for subject, value in pattern.findall(text):
                assert facts[subject, relation] == value, text
                stated += 1
    assert stated > 300


def test_pretraining_never_shows_the_form_of_a_task_or_a_held_out_story() -> None:
    for text in (story.text for story in islice(pretraining_texts(1), 3000)):
        assert not re.search(r"[?:#\n]", text)
        assert split_of(text) == "train"


def test_a_story_computes_right_after_the_event() -> None:
    source = random.Random(3)
    for text in (make_story(source).text for _ in range(300)):
        sentences = text.removesuffix(".").split(". ")
        for before, sentence in pairwise(sentences):
            if found := _COMPUTATION.search(sentence):
                assert sentence.startswith("That makes")
                assert found[3] in re.findall(r"\d+", before) or re.search("twice|three times|double|triple", before)
