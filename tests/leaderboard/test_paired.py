"""Tests on the board: equal methods are not ranked, different ones are, and every face shows the same ranks."""

import csv
import io
import json
import re

import numpy as np
import pytest

from adaptive_bench.cli.headroom import verdict
from adaptive_bench.leaderboard.answers import read_answers
from adaptive_bench.leaderboard.frame import board_of, read_board
from adaptive_bench.leaderboard.page import render
from adaptive_bench.leaderboard.row import Rejected, checked
from adaptive_bench.leaderboard.site import as_csv, as_markdown
from adaptive_bench.store import results

DOCUMENTS, SEEDS = 60, 3
METRIC = "exact_match,strict-match"


@pytest.fixture
def write_run(tmp_path, make_row):
    """A run's folder with rows and answers of methods that are right as often as said."""

    def write(accuracies, seed=0, levels=(0.1,), metric=METRIC):
        generator = np.random.default_rng(seed)
        hard = generator.normal(0, 1.5, DOCUMENTS)
        rows, sweeps = [], []
        for method, accuracy in accuracies.items():
            logits = np.log(accuracy / (1 - accuracy)) * 1.6 + hard + generator.normal(0, 0.2, (SEEDS, 1))
            right = generator.random((SEEDS, DOCUMENTS)) < 1 / (1 + np.exp(-logits))
            for level in levels:
                about = {"method": method, "level": level, "score": right.mean(), "seeds": SEEDS, "metric": metric}
                rows.append(make_row(phase="all", **(about | {"low": 0.0, "high": 1.0})))
            for number, answers in enumerate(right, 1):
                text = "".join(str(int(one)) for one in answers)
                points = [{"saved": {"net": saved}, "times": {}, "scores": {metric: text}} for saved in (0.0, 0.2)]
                about = {"method": method, "semantics": "bench", "task": "nano_math", "seed": number, "target": None}
                about |= {"documents": list(range(DOCUMENTS)), "documents_sha256": "ab"}
                sweeps.append(about | {"points": [{"dial": 0.0} | point for point in points]})
        folder = tmp_path / f"run{seed}"
        folder.mkdir()
        (folder / "table.json").write_text(json.dumps(rows))
        (folder / "answers.json").write_text(json.dumps({"schema": 1, "sweeps": sweeps}))
        results.write_run(folder, {})
        return folder / "table.json"

    return write


def test_simulated_equal_methods_are_not_ranked(write_run):
    boards = [read_board([write_run(dict.fromkeys(("random_skip", "mod", "calm", "free", "gateskip"), 0.6), seed)])
              for seed in range(40)]  # fmt: skip
    ranked = [board for board in boards if {(row.rank_low, row.rank_high) for row in board.rows} != {(1, 5)}]
    assert len(ranked) <= 4  # 5 % of 40 are 2; more than 4 have a probability of 5 % there
    assert sum("no method is certainly ahead" in verdict(board, "net") for board in boards) >= 36


def test_different_methods_are_told_apart_and_the_sentence_says_so(write_run):
    board = read_board([write_run({"random_skip": 0.2, "mod": 0.9, "calm": 0.88, "free": 0.5})])
    ranks = {row.method: (row.rank_low, row.rank_high) for row in board.rows}
    assert ranks == {"mod": (1, 2), "calm": (1, 2), "free": (3, 3), "random_skip": (4, 4)}
    free = next(row for row in board.rows if row.method == "free")
    assert free.difference_p < 0.05 and 0 < free.difference_low < free.difference < free.difference_high
    assert free.compared_to in ("mod", "calm") and free.over_random_p < 0.05 and free.over_random > 0
    assert (free.tested_seeds, free.tested_documents) == (SEEDS, DOCUMENTS)
    said = verdict(board, "net")
    assert "ahead of random skipping; rank 1 to 2 of 4" in said and "free" not in said and "told apart" not in said
    assert "not by a paired test" not in said


def test_what_beats_random_skipping_is_held_against_trained_static_depth_too(write_run):
    static = "static_depth[trained=true]"
    board = read_board([write_run({"random_skip": 0.1, static: 0.6, "mod": 0.95, "calm": 0.62, "free": 0.2})])
    rows = {row.method: row for row in board.rows}
    assert rows[static].over_static is None and rows["mod"].over_static_p < 0.05 < rows["calm"].over_static_p
    assert 0 < rows["mod"].over_static_low < rows["mod"].over_static < rows["mod"].over_static_high
    assert rows["free"].over_static < 0 and rows["free"].over_static_high < 0
    assert "ahead of random skipping; rank 1 of 5" in verdict(board, "net")
    board = read_board([write_run({"random_skip": 0.1, static: 0.6, "calm": 0.62}, seed=1)])
    assert f"ahead of random skipping but not of the control {static}; rank 1 to 2 of 3" in verdict(board, "net")


def test_page_markdown_and_csv_have_the_same_ranks(write_run):
    board = read_board([write_run({"random_skip": 0.05, "mod": 0.95, "calm": 0.5}, levels=(0.0, 0.1))])
    lines = list(csv.DictReader(io.StringIO(as_csv(board))))
    page = render(board, "net")
    ranks = [line["rank_low"] for line in lines]
    assert set(ranks) == {"1", "2", "3"} and [line["rank_high"] for line in lines] == ranks
    shown = page.partition('<main id="board"')[2].partition("</main>")[0]
    assert sorted(re.findall(r'class="rank">(\d)<', shown)) == sorted(ranks)
    assert "* 10 %: mod 1, calm 2, random_skip 3" in as_markdown(board, "net")


def test_without_documents_nothing_is_tested_and_the_sentence_says_so(make_row):
    rows = [make_row(method=name, score=score, low=score - 0.05, high=score + 0.05, level=0.15)
            for name, score in (("random_skip", 0.2), ("mod", 0.9))]  # fmt: skip
    board = board_of(map(checked, rows))
    assert {row.rank_low for row in board.rows} == {None} and not board.comparisons
    assert verdict(board, "net").endswith("not by a paired test.")


def test_methods_of_other_documents_are_not_compared(write_run, make_row):
    one, other = write_run({"random_skip": 0.2, "mod": 0.9}, 1), write_run({"calm": 0.5}, 2)
    text = (other.parent / "answers.json").read_text()
    (other.parent / "answers.json").write_text(text.replace('"ab"', '"cd"'))
    ranks = {row.method: row.rank_low for row in read_board([one, other]).rows}
    assert ranks["calm"] is None and ranks["mod"] == 1


def test_answers_that_do_not_give_the_row_s_score_are_not_taken_for_it(write_run):
    path = write_run({"random_skip": 0.2, "mod": 0.9, "calm": 0.5})
    rows = json.loads(path.read_text())
    path.write_text(json.dumps([row | ({"score": 0.99} if row["method"] == "calm" else {}) for row in rows]))
    results.write_run(path.parent, {})
    ranks = {row.method: row.rank_low for row in read_board([path]).rows}
    assert ranks["calm"] is None and ranks["mod"] == 1


def test_a_method_is_tested_with_the_answers_of_comparable_runs_alone(write_run):
    """Two models, the same documents: each table is tested with the answers of its own model."""
    tables = [write_run({"random_skip": 0.2, "mod": score}, number) for number, score in ((1, 0.9), (2, 0.21))]
    for table, model in zip(tables, ("nano", "tiny"), strict=True):
        rows = [row | {"model": model, "backbone": model} for row in json.loads(table.read_text())]
        table.write_text(json.dumps(rows))
        results.write_run(table.parent, {})
    rows = read_board(tables).rows
    ranks = {row.model: [one.rank_low for one in rows if one.model == row.model] for row in rows}
    assert sorted(ranks["nano"]) == [1, 2] and ranks["tiny"] == [1, 1]


DAMAGED = (
    "[]",
    "{",
    '{"sweeps": 3}',
    '{"sweeps": [{}]}',
)


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_answers_are_refused_and_the_build_goes_on(tmp_path, make_row, text):
    (tmp_path / "table.json").write_text(json.dumps([make_row()]))
    (tmp_path / "answers.json").write_text(text)
    results.write_run(tmp_path, {})
    with pytest.raises(Rejected):
        read_answers(tmp_path)
    board = read_board([tmp_path / "table.json"])
    assert len(board.rows) == 1 and any("Paired tests" in text for text in board.problems)
