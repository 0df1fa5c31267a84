"""What findings say of a task that cannot rank adaptive methods, and of records that nobody should believe."""

import json

import pytest

from adaptive_bench.leaderboard.entry import check
from adaptive_bench.leaderboard.findings import findings
from adaptive_bench.leaderboard.frame import board_of
from adaptive_bench.leaderboard.headroom import for_entry, headroom
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


def test_a_task_without_headroom_cannot_rank(said):
    (text,) = said((0.1, WITHOUT, WITHOUT), (0.2, WITHOUT, None))
    assert text.startswith("On this model nano_math cannot rank adaptive methods at any saving")
    (text,) = said((0.1, WITHOUT, WITHOUT), (0.2, WITH, None))
    assert "cannot rank adaptive methods at 10 % saved" in text


@pytest.mark.parametrize("level", [(0.1, WITH, WITHOUT), (0.1, WITHOUT, WITH), (0.1, WITH, None)])
def test_one_oracle_above_the_static_sets_is_enough(said, level):
    (text,) = said(level)
    assert "cannot rank" not in text and "there is something to decide" in text


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
    assert "**nano\\_math**: On this model nano\\_math cannot rank adaptive methods at any saving" in findings(board)
    assert verdict(board, "net").endswith("(the intervals hold 0 or lie below).")
    assert "cannot rank" not in findings(board_of(map(checked, rows)))


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
