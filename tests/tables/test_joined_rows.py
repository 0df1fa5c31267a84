"""Tables of several runs in one, and what is said beneath a table."""

import json
from pathlib import Path

from adaptive_bench.leaderboard.boards import board_of
from adaptive_bench.leaderboard.row import checked
from adaptive_bench.tables import comparability
from adaptive_bench.tables.comparability import environments, joined, made_by_other_rules, made_with
from adaptive_bench.tables.task_notes import unparsable_notes

HERE, THERE = Path("runs/here-seed1-aa"), Path("runs/there-seed1-bb")
ROW = {"method": "dense", "task": "t", "metric": "acc,none", "axis": "net", "level": 0.0, "score": 0.5, "status": "ok"}


def made(torch, device="cpu"):
    about = {"adaptive-bench": "1", "torch": torch, "transformers": "4", "lm-eval": "0.4", "device": device}
    return made_with([about | {"device_name": "A/B (R) <x>"}])


def test_one_score_of_two_machines_is_one_row_that_names_both():
    (row,) = joined({HERE: [ROW | {"made_with": made("1.0")}], THERE: [ROW | {"made_with": made("2.0")}]})
    assert len(environments([row["made_with"]])) == 2


def test_a_row_is_held_to_the_dense_score_of_its_own_run():
    """Two runs of one recipe with other seeds disagree on the dense model, and each has a method of its own."""
    tables = {
        HERE: [ROW | {"score": 0.5}, ROW | {"method": "mod", "level": 0.1, "score": 0.4}],
        THERE: [ROW | {"score": 0.8}, ROW | {"method": "gateskip", "level": 0.1, "score": 0.4}],
    }
    board = board_of(joined({folder: [checked(row) for row in rows] for folder, rows in tables.items()}))
    held = {row.label: (row.dense, row.score / row.dense) for row in board.rows}
    assert held == {
        "dense (seed1-aa)": (0.5, 1),
        "mod": (0.5, 0.8),
        "dense (seed1-bb)": (0.8, 1),
        "gateskip": (0.8, 0.5),
    }


def test_a_table_of_other_rules_is_said_to_be_one(tmp_path, monkeypatch):
    for name, about in (("old", {}), ("new", {"tables": 2})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps(about))
    folders = [tmp_path / name for name in ("old", "new")]
    monkeypatch.setattr(comparability, "TABLES", 1)
    (new,) = made_by_other_rules(folders)
    assert "new was made by version 2" in new and "--table-only" in new
    monkeypatch.setattr(comparability, "TABLES", 2)
    assert [text.split()[3] for text in made_by_other_rules(folders)] == ["old"]


def written(*scores, metric="unparsable,strict-match", method="gateskip"):
    return [
        {"method": method, "task": "gsm8k", "metric": metric, "level": level / 10, "score": score}
        for level, score in enumerate(scores)
    ]


def test_many_answers_that_cannot_be_read_are_said_with_the_worst_place_and_dense_beside():
    (note,) = unparsable_notes(written(0.05, 0.31, None) + written(0.02, 0.02, method="dense"))
    assert "gsm8k: up to 31% of what was written" in note and "(gateskip with 10% saved, of dense 2%)" in note


def test_few_of_them_and_other_metrics_are_not():
    assert not unparsable_notes(written(0.05, 0.1) + written(0.9, metric="exact_match,strict-match"))


def test_a_base_that_was_taught_no_form_is_not_what_is_warned_of():
    base = [row | {"train_tokens": 0} for row in written(1.0, method="base")]
    assert not unparsable_notes(base + [row | {"train_tokens": 9} for row in written(0.02)])
    assert len(unparsable_notes(base)) == 1
