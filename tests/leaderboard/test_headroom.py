"""What findings say of a task with nothing to decide, and of records that nobody should believe."""

import html
import json

import pytest

from adaptive_bench.leaderboard.boards import Source, board_of
from adaptive_bench.leaderboard.page import files_of
from adaptive_bench.leaderboard.provenance import headroom
from adaptive_bench.leaderboard.row import checked

WITHOUT = {"holds_0": True}
WITH = {"holds_0": False}


@pytest.fixture
def said(tmp_path):
    def make(*levels, task="nano_math", tasks=("nano_math",)):
        """`levels`: by saving what is known of the attainable oracle."""
        found = [{"level": level, "reached": True, "headroom": one} for level, one in levels]
        about = {"task": task, "documents": 128, "unit": "share", "chance": 0.0, "asked_once": None, "levels": found}
        record = {"kind": "headroom", "tasks": [about | {"dense": {"score": 0.9, "low": 0.8, "high": 1.0}}]}
        (tmp_path / "headroom.json").write_text(json.dumps(record))
        return [text for _, text in headroom([tmp_path], tasks)]

    return make


def test_a_task_without_headroom_is_said_to_have_none_for_models_that_were_not_trained_to_skip(said):
    (text,) = said((0.1, WITHOUT), (0.2, WITHOUT))
    told = (
        "On nano_math, leaving layers out of this model as it is, no attainable oracle lies above the best static sets"
    )
    assert text.startswith(f"{told} at any saving") and "rank" not in text
    assert text.endswith("Methods that train the model to skip are not bounded by this.")
    (text,) = said((0.1, WITHOUT), (0.2, WITH))
    assert text.startswith(f"{told} at 10 % saved")


def test_an_oracle_above_the_static_sets_leaves_something_to_decide(said):
    (text,) = said((0.1, WITH))
    assert "no attainable oracle" not in text and "there is something to decide" in text


def test_nothing_is_said_where_nothing_was_measured(said, tmp_path):
    assert list(headroom([tmp_path], ["nano_math"])) == []
    assert said((0.1, WITHOUT), tasks=["another"]) == []
    (text,) = said((0.1, None))
    assert "is not known" in text


def test_a_record_that_is_none_is_left_out_aloud(tmp_path):
    (tmp_path / "headroom.json").write_text('{"tasks": 3}')
    ((name, text),) = headroom([tmp_path], ["nano_math"])
    assert name.endswith("headroom.json")
    assert text.startswith("Left out: headroom.json is not what `headroom --output` writes")


def test_the_page_says_it(said, tmp_path, make_row):
    (text,) = said((0.1, WITHOUT))
    rows = [checked(make_row(level=0.15))]
    source = Source(tmp_path, None, [(row.task, row.conditions) for row in board_of(rows).rows])
    page = files_of(board_of(rows, [source]))["index.html"]
    assert html.escape(text) in page and "Whether there is anything to decide" in page
    assert "anything to decide" not in files_of(board_of(rows))["index.html"]
