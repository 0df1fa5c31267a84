"""Splits of the nano tasks cannot overlap, whatever the seeds, and the tasks hand out the split they were asked for."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_bench.task import ExampleRequest, Task
from adaptive_bench.tasks.nano.corpus import training_examples
from adaptive_bench.tasks.nano.harness_docs import TEST_SEED
from adaptive_bench.tasks.nano.item import PROMPT
from adaptive_bench.tasks.nano.math_problems import make_math_problem
from adaptive_bench.tasks.nano.qa_questions import make_question
from adaptive_bench.tasks.nano.splits import split_of, stream
from adaptive_bench.tasks.nano.task import NANO_MATH, NANO_QA, NANO_QA_LL

_SEEDS = st.integers(min_value=0, max_value=2**32)
_TASKS = pytest.mark.parametrize("task", (NANO_MATH, NANO_QA, NANO_QA_LL), ids=lambda task: task.name)


@pytest.mark.parametrize("make", (make_math_problem, make_question))
@settings(max_examples=15, deadline=None)
@given(train_seed=_SEEDS, test_seed=_SEEDS)
def test_no_question_is_in_two_splits(make: object, train_seed: int, test_seed: int) -> None:
    train, calibration, test = (
        {item.question for item in islice(stream(make, split, seed), 40)}
        for split, seed in (("train", train_seed), ("calibration", train_seed), ("test", test_seed))
    )
    assert not train & calibration
    assert not train & test
    assert not calibration & test


def test_the_split_of_a_key_is_the_same_on_every_machine() -> None:
    assert [split_of(key) for key in ("0", "6", "11", "straße")] == ["train", "test", "calibration", "train"]


@_TASKS
def test_training_examples_depend_on_the_seed_alone(task: Task) -> None:
    first, again, longer, other, held_out = (
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
    assert not {example.prompt for example in first} & {example.prompt for example in held_out}


def test_pretraining_never_shows_a_test_question() -> None:
    shown = {example.prompt for example in islice(training_examples(1), 3000)}
    for make in (make_math_problem, make_question):
        held_out = [PROMPT.format(question=item.question) for item in islice(stream(make, "test", TEST_SEED), 200)]
        assert not shown & set(held_out)
