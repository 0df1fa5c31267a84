"""What findings say of a task with nothing to decide, and of records that nobody should believe."""

import json
from copy import deepcopy
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest

from adaptive_bench.leaderboard.entry import check
from adaptive_bench.leaderboard.findings import findings
from adaptive_bench.leaderboard.frame import board_of
from adaptive_bench.leaderboard.headroom import check_headroom, for_entry, headroom
from adaptive_bench.leaderboard.headroom_form import check_task
from adaptive_bench.leaderboard.rows import Rejected, checked
from adaptive_bench.leaderboard.verdict import verdict
from adaptive_bench.store.digest import sealed, unsealed

WITHOUT = {"holds_0": True}
WITH = {"holds_0": False}


@pytest.fixture
def said(tmp_path):
    def make(*levels, task="nano_math", tasks=("nano_math",), seal=sealed):
        """`levels`: by saving what is known of each attainable oracle."""
        found = [
            {"level": level, "reached": True, "headroom": one, "headroom_of_exits": other}
            for level, one, other in levels
        ]
        about = {"task": task, "documents": 128, "unit": "share", "chance": 0.0, "asked_once": None, "levels": found}
        about["exit_oracle"] = {"online": {"headroom": None}}
        record = {"kind": "headroom", "tasks": [about | {"dense": {"score": 0.9, "low": 0.8, "high": 1.0}}]}
        (tmp_path / "headroom.json").write_text(seal(json.dumps(record, indent=1) + "\n"))
        return [text for _, text in headroom([tmp_path], tasks)]

    return make


def test_a_task_without_headroom_is_said_to_have_none_for_models_that_were_not_trained_to_skip(said):
    (text,) = said((0.1, WITHOUT, WITHOUT), (0.2, WITHOUT, None))
    told = (
        "On nano_math, leaving layers out of this model as it is, no attainable oracle lies above the best static sets"
    )
    assert text.startswith(f"{told} at any saving") and "rank" not in text
    assert text.endswith("Methods that train the model to skip are not bounded by this.")
    (text,) = said((0.1, WITHOUT, WITHOUT), (0.2, WITH, None))
    assert text.startswith(f"{told} at 10 % saved")


@pytest.mark.parametrize("level", [(0.1, WITH, WITHOUT), (0.1, WITHOUT, WITH), (0.1, WITH, None)])
def test_one_oracle_above_the_static_sets_is_enough(said, level):
    (text,) = said(level)
    assert "no attainable oracle" not in text and "there is something to decide" in text


def test_nothing_is_said_where_nothing_was_measured(said, tmp_path):
    assert list(headroom([tmp_path], ["nano_math"])) == []
    assert said((0.1, WITHOUT, None), tasks=["another"]) == []
    (text,) = said((0.1, None, None))
    assert "is not known" in text


def test_a_record_that_was_changed_or_is_none_is_left_out_aloud(said, tmp_path):
    (text,) = said((0.1, WITHOUT, None), seal=lambda text: sealed(text).replace("true", "false"))
    assert text.startswith("Left out: headroom.json is not what `headroom --output` writes")
    (tmp_path / "headroom.json").write_text(sealed('{"tasks": 3}\n'))
    ((name, text),) = headroom([tmp_path], ["nano_math"])
    assert name.endswith("headroom.json") and text.startswith("Left out")


def test_findings_and_verdict_say_it(said, tmp_path, make_row):
    said((0.1, WITHOUT, WITHOUT))
    rows = [make_row(method=method, level=0.15, phase="all") for method in ("random_skip", "mod")]
    board = board_of(map(checked, rows), [tmp_path])
    assert "**nano\\_math**: On nano\\_math, leaving layers out of this model as it is" in findings(board)
    assert verdict(board, "net").endswith("Methods that train the model to skip are not bounded by this.")
    assert "attainable oracle" not in findings(board_of(map(checked, rows)))


def test_an_entry_takes_the_record_along_without_the_machine(said, tmp_path):
    said((0.1, WITHOUT, WITHOUT))
    path = tmp_path / "headroom.json"
    record = unsealed(path.read_bytes()) | {"model": {"name": "/home/secret"}, "settings": {"data_dir": "/home/secret"}}
    path.write_text(sealed(json.dumps(record, indent=1) + "\n"))
    path.write_bytes(for_entry(path))
    assert "secret" not in path.read_text() and len(list(headroom([tmp_path], ["nano_math"]))) == 1
    path.write_text("{}")
    with pytest.raises(Rejected, match="is not what `headroom --output` writes"):
        for_entry(path)


def test_an_entry_names_its_headroom_with_a_digest(tmp_path):
    (tmp_path / "table.json").write_text("[]")
    (tmp_path / "headroom.json").write_text("{}")
    digest = "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"  # of `[]`
    (tmp_path / "entry.json").write_text(json.dumps({"schema": 2, "files": {"table.json": digest}}))
    with pytest.raises(Rejected, match=r"headroom\.json has no digest"):
        check(tmp_path)


ENTRY = Path(__file__).parents[2] / "leaderboard" / "entries" / "nano"
MATCH = "exact_match,strict-match"
METRICS = {"nano_math": {MATCH}, "nano_qa": {MATCH}, "nano_text": {"bits_per_byte,none"}}


@pytest.fixture(scope="module")
def published():
    return {one["task"]: one for one in json.loads((ENTRY / "headroom.json").read_text())["tasks"]}


def test_what_headroom_found_is_in_order(published):
    for about in published.values():
        check_task(about, METRICS)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("task", "mine", "about 'mine', which is no task of the table"),
        ("metric", "acc,none", "'acc,none' is no metric that the table has of it"),
        ("chance", 2.0, "chance is a number from 0 to 1, got 2"),
        ("documents", 127, "documents is 128, got 127"),
        ("dense.score", 0.5, "dense.score is 0.99.*, by the scores beside it, got 0.5"),
        ("dense.low", None, "dense.low is 0.95"),
        ("dense_again.maximum", 1.5, "dense_again.maximum is a number from 0 to 1, got 1.5"),
        ("asking_changes", 0.5, "asking_changes is 0.02"),
        ("sets.0.skipped", [2], r"the first set leaves nothing out, got \[2\]"),
        ("sets.1.test.0", 0.9, r"sets\[1\].test\[0\] is 0.28"),
        ("sets.1.test", [0.9], r"sets\[1\].test has a score for each asking"),
        ("sets.1.scores.0", [1.0], "every set has a score for each asking and document"),
        ("sets.1.saved", 1.5, r"sets\[1\].saved is a number from -inf to 1"),
        ("sets.1.validation", float("nan"), r"sets\[1\].validation is a number from 0 to 1"),
        ("levels.0.level", 0.3, "the levels rise"),
        ("levels.0.reached", False, r"levels\[0\].reached is True, got False"),
        ("levels.0.static", 1.5, r"levels\[0\].static is a number from 0 to 1"),
        ("levels.0.static_weights", [1.0, 1.0], r"levels\[0\].static_weights together is a number from"),
        ("levels.0.headroom.holds_0", False, r"levels\[0\].headroom.holds_0 is True"),
        ("levels.0.headroom_of_exits.difference", 0.9, r"levels\[0\].headroom_of_exits lies outside its own interval"),
        ("levels.0.headroom.difference", 0.9, r"levels\[0\].headroom.difference is 0.00"),
        ("levels.0.headroom.high", 7.0, r"levels\[0\].headroom.high is a number from -1 to 1"),
        ("levels.0.cross_fitted", 1.0, r"levels\[0\].headroom.difference is 0.127.*, by the scores beside it"),
        ("levels.0.cross_fitted", None, r"levels\[0\].headroom.difference is None"),
        ("levels.0.gold", 0.9, r"levels\[0\].in_sample.difference is"),
        ("exit_oracle.online.score", 0.9, r"exit_oracle.online.headroom.difference is"),
        ("levels.0.headroom.p", -1, r"levels\[0\].headroom.p is a number from 0 to 1"),
        ("exit_oracle.online.saved", 2, r"exit_oracle.online.saved is a number from -inf to 1"),
        ("exit_oracle.online.headroom.high", 7.0, r"exit_oracle.online.headroom.high is a number from -1 to 1"),
    ],
)
def test_what_headroom_cannot_have_found_is_refused(published, place, value, said):
    about = deepcopy(published["nano_math"])
    *way, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    reduce(getitem, way, about)[last] = value
    with pytest.raises(Rejected, match=said):
        check_task(about, METRICS)


def test_an_entry_with_other_headroom_is_refused(published, tmp_path):
    about = deepcopy(published["nano_math"])
    about["dense"]["score"] = 1.0
    (tmp_path / "headroom.json").write_text(sealed(json.dumps({"kind": "headroom", "version": 1, "tasks": [about]})))
    with pytest.raises(Rejected, match=r"nano_math, dense\.score is"):
        check_headroom(tmp_path, METRICS)
    del about["levels"]
    (tmp_path / "headroom.json").write_text(sealed(json.dumps({"kind": "headroom", "version": 1, "tasks": [about]})))
    with pytest.raises(Rejected, match="is not what `headroom --output` writes"):
        check_headroom(tmp_path, METRICS)
