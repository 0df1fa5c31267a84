from dataclasses import replace

import pytest

from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.tables.task_notes import floor_ceiling_notes

QA = find_task("nano_qa_ll")


def rows(*scores, task=QA, **changes):
    row = {"task": task.name, "metric": task.metrics[0], "low": None, "high": None}
    return [row | {"score": score} | changes for score in scores]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (rows(0.0, 0.0, None), "every score is 0"),
        (rows(1.0, 1.0), "every score is 100 %"),
        (rows(0.24, 0.3, low=0.1, high=0.4), "guessing (25%)"),
    ],
)
def test_tables_that_compare_nothing_are_noted(found, words):
    (note,) = floor_ceiling_notes(found, [QA])
    assert note.startswith("nano_qa_ll: ") and words in note


@pytest.mark.parametrize(
    "found",
    [
        [],
        rows(None),
        rows(0.0, 0.1),
        rows(0.9, 1.0),
        rows(0.3, low=0.26, high=0.4),
        [*rows(0.3, low=0.2, high=0.4), *rows(0.8, low=0.7, high=0.9)],
        rows(0.0, metric="another"),
    ],
)
def test_others_are_not(found):
    assert floor_ceiling_notes(found, [QA]) == []


def test_a_metric_that_is_no_share_has_no_floor():
    task = replace(QA, metrics=("perplexity,none",))
    assert floor_ceiling_notes(rows(0.0, task=task), [task]) == []
