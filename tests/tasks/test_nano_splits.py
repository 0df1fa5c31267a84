"""Splits of the nano tasks cannot overlap, whatever the seeds, and the tasks hand out the split they were asked for."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_bench.task import ExampleRequest, Task
from adaptive_bench.tasks.nano.harness_docs import held_out
from adaptive_bench.tasks.nano.items import split_of, stream
from adaptive_bench.tasks.nano.questions import make_math_problem, make_question
from adaptive_bench.tasks.nano.stories import make_story
from adaptive_bench.tasks.nano.task import NANO_MATH, NANO_QA, NANO_QA_LL, NANO_TEXT

_SEEDS = st.integers(min_value=0, max_value=2**32)
_TASKS = pytest.mark.parametrize("task", (NANO_MATH, NANO_QA, NANO_QA_LL, NANO_TEXT), ids=lambda task: task.name)


@pytest.mark.parametrize("make", (make_math_problem, make_question, make_story))
@settings(max_examples=15, deadline=None)
@given(seed=_SEEDS, other_seed=_SEEDS)
def test_no_item_is_in_two_splits(make: object, seed: int, other_seed: int) -> None:
    found = [
        {item.key for item in islice(stream(make, split, chosen), 40)}
        for split, chosen in (("train", seed), ("calibration", seed), ("validation", other_seed), ("test", other_seed))
    ]
    assert all(not first & second for place, first in enumerate(found) for second in found[:place])


@pytest.mark.parametrize("make", (make_math_problem, make_question, make_story))
def test_no_document_is_tested_twice(make: object) -> None:
    keys = [item.key for item in held_out(make, "test", 500)]
    assert len(set(keys)) == len(keys) == 500
    assert {split_of(key) for key in keys} == {"test"}


def test_the_split_of_a_key_is_the_same_on_every_machine() -> None:
    expected = {"0": "train", "6": "test", "11": "validation", "42": "calibration", "straße": "train"}
    assert {key: split_of(key) for key in expected} == expected


@_TASKS
def test_training_examples_depend_on_the_seed_alone(task: Task) -> None:
    first, again, longer, other, validated = (
        task.training(ExampleRequest(split=split, count=count, seed=seed))
        for split, count, seed in (
            ("train", 20, 1),
            ("train", 20, 1),
            ("train", 30, 1),
            ("train", 20, 2),
            ("calibration", 20, 1),
        )
    )
    assert first == again == longer[:20]
    assert first != other
    assert not set(first) & set(validated)
