"""Rows share a table where they were asked the same of the same model, trained alike; else the difference is said."""

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.tables.comparability import Conditions, conditions_of, differences

ONE = Conditions("nano", "ab" * 8, "steps 320, batch_size 32, target 0.2 net", "1", 128, 0, "cd" * 8)


def test_alike_there_is_nothing_to_say():
    assert differences([ONE, ONE]) == {ONE: ""}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"documents": 8, "asked": "ef" * 8}, ["128 documents", "8 documents"]),
        ({"model": "tiny", "backbone": "ef" * 8}, ["model nano", "model tiny"]),
        ({"shots": 1}, ["0 shots", "1 shot"]),
        ({"task_version": "2"}, ["task version 1", "task version 2"]),
        ({"recipe": "steps 320, batch_size 8, target 0.2 net"}, ["batch size 32", "batch size 8"]),
        ({"recipe": f"{ONE.recipe}, quantize int4"}, ["not quantized", "quantize int4"]),
        ({"recipe": f"{ONE.recipe}, temperature 0.7"}, ["greedy", "temperature 0.7"]),
        ({"recipe": "steps 0"}, ["steps 320, batch size 32, target 0.2 net", "steps 0"]),
        ({"asked": "ef" * 8}, ["prompts cdcdcdcd", "prompts efefefef"]),
        ({"definition": "ef" * 8}, ["of an earlier version", "task definition efefefef"]),
        ({"backbone": "ef" * 8}, ["weights abababab", "weights efefefef"]),
        ({"documents": 8, "shots": 1}, ["128 documents, 0 shots", "8 documents, 1 shot"]),
        (dict.fromkeys(asdict(ONE)), None),
    ],
)
def test_only_what_differs_is_said(changes, said):
    other = replace(ONE, **changes)
    found = differences([ONE, other])
    if said is None:
        assert found[other] == "of an earlier version" and "model nano, 128 documents" in found[ONE]
    else:
        assert [found[ONE], found[other]] == said


def test_a_model_may_be_called_differently():
    assert replace(ONE, model="copy of nano") == ONE


def test_a_row_that_says_little_has_conditions():
    assert conditions_of({}) == Conditions()
    assert conditions_of(asdict(ONE) | {"method": "mod"}) == ONE


SOME = st.builds(
    Conditions,
    backbone=st.sampled_from([None, "ab" * 8, "cd" * 8]),
    recipe=st.sampled_from(
        [None, "steps 0", "steps 320, decay cosine", "steps 320, decay linear_end", "steps 0, quantize nf4"]
    ),
    documents=st.sampled_from([None, 8, 128]),
    asked=st.sampled_from([None, "ab" * 8, "cd" * 8]),
)


@given(st.lists(SOME, min_size=1, max_size=6))
def test_no_two_are_told_alike(conditions):
    found = differences(conditions)
    assert len(set(found.values())) == len(found) == len(set(conditions))
