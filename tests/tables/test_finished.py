"""Tables of several runs in one: what is not comparable stays apart, what was made elsewhere is said."""

import json
from pathlib import Path

from adaptive_bench.leaderboard.frame import board_of
from adaptive_bench.leaderboard.grid import grids
from adaptive_bench.leaderboard.row import Row, checked
from adaptive_bench.tables import finished
from adaptive_bench.tables.finished import joined, made_by_other_rules
from adaptive_bench.tables.made_with import environments, made_with

HERE, THERE = Path("runs/here-seed1-aa"), Path("runs/there-seed1-bb")
ROW = {"method": "dense", "task": "t", "metric": "acc,none", "axis": "net", "level": 0.0, "score": 0.5, "status": "ok"}


def made(torch, device="cpu"):
    about = {"adaptive-bench": "1", "torch": torch, "transformers": "4", "lm-eval": "0.4", "device": device}
    return made_with([about | {"device_name": "A/B (R) <x>"}])


def shown(tables):
    return grids(Row.of(checked(row)) for row in joined(tables))


def test_rows_that_were_scored_otherwise_share_no_table():
    other = {"method": "mod", "score": 0.4}
    tables = shown({HERE: [ROW | {"definition": "ab" * 8}], THERE: [ROW | other | {"definition": "cd" * 8}]})
    assert [(grid.apart, grid.methods) for grid in tables] == [
        ("task definition abababab", ["dense"]),
        ("task definition cdcdcdcd", ["mod"]),
    ]
    (together,) = shown({HERE: [ROW], THERE: [ROW | other]})
    assert together.methods == ["dense", "mod"], "rows of earlier versions, which say nothing of it"


def test_a_joined_table_says_that_it_was_made_with_different_versions():
    old, new = {"made_with": made("1.0")}, {"made_with": made("2.0+cu1", "cuda:1")}
    (grid,) = shown({HERE: [ROW | old], THERE: [ROW | {"method": "mod"} | new]})
    (note,) = grid.notes
    assert "torch 1.0" in note and "torch 2.0+cu1" in note and "cuda:1" in note
    (alike,) = shown({HERE: [ROW | old], THERE: [ROW | {"method": "mod"} | old]})
    assert not alike.notes
    (unknown,) = shown({HERE: [ROW], THERE: [ROW | {"method": "mod"} | old]})
    assert not unknown.notes


def test_one_score_of_two_machines_is_one_row_that_names_both():
    (row,) = joined({HERE: [ROW | {"made_with": made("1.0")}], THERE: [ROW | {"made_with": made("2.0")}]})
    assert len(environments([row["made_with"]])) == 2


def test_what_is_kept_is_a_share_of_the_dense_score_of_the_same_run():
    """Two runs of one recipe with other seeds disagree on the dense model, and each has a method of its own."""
    tables = {
        HERE: [ROW | {"score": 0.5}, ROW | {"method": "mod", "level": 0.1, "score": 0.4}],
        THERE: [ROW | {"score": 0.8}, ROW | {"method": "gateskip", "level": 0.1, "score": 0.4}],
    }
    board = board_of(joined({folder: [checked(row) for row in rows] for folder, rows in tables.items()}))
    kept = {row.label: row.kept for row in board.rows}
    assert kept == {"dense (seed1-aa)": 1.0, "mod": 0.8, "dense (seed1-bb)": 1.0, "gateskip": 0.5}


def test_a_table_of_other_rules_is_said_to_be_one(tmp_path, monkeypatch):
    for name, about in (("old", {}), ("new", {"tables": 2}), ("odd", {"tables": "\x1b[2J"})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps(about))
    folders = [tmp_path / name for name in ("old", "new", "odd")]
    monkeypatch.setattr(finished, "TABLES", 1)
    new, odd = made_by_other_rules(folders)
    assert "new was made by version 2" in new and "--table-only" in new and "version unknown" in odd
    monkeypatch.setattr(finished, "TABLES", 2)
    assert [text.split()[3] for text in made_by_other_rules(folders)] == ["old", "odd"]
