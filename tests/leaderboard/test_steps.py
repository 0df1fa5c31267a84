"""What a board says of a run whose training was compared with twice as much."""

import json
import re

import pytest

from adaptive_bench.leaderboard.frame import read_board
from adaptive_bench.leaderboard.page import render
from adaptive_bench.leaderboard.site import as_csv, as_markdown
from adaptive_bench.store.records import Record
from adaptive_bench.store.results import write_run

METHODS = {"gateskip@paper": (0.2, 0.9, 0.9), "mod": (0.6, 0.6, 0.6), "dense": (None, None, None)}
STEPS = (320, 640, 1280)
RECIPES = {steps: f"steps {steps}, batch_size 32" for steps in STEPS}


def record(**changes):
    """As `adaptive-bench steps` writes it."""
    scores = [
        {
            "method": method,
            "task": "nano_math",
            "metric": "exact_match,strict-match",
            "steps": steps,
            "score": score,
            "low": score and score - 0.1,
            "high": score and score + 0.1,
            "seeds": 1,
            "documents": 60,
        }
        for method, curve in METHODS.items()
        for steps, score in zip(STEPS, curve, strict=True)
    ]
    first = {"not_converged": ["gateskip@paper"], "reversals": [["mod", "gateskip@paper"]]}
    about = {"task": "nano_math", "pairs": 1, "told_apart": [1, 1]}
    doublings = [about | first | {"steps": 320}, about | {"steps": 640, "not_converged": [], "reversals": []}]
    about = {"schema": 1, "recipe": {"match_on": "net", "match_phase": "all", "seeds": [1]}, "level": 0.15}
    about |= {"recipes": RECIPES, "backbone": "b" * 16, "steps": STEPS, "enough": 640}
    return about | {"scores": scores, "doublings": doublings} | changes


@pytest.fixture
def run_of(tmp_path, make_row):
    """`run_of(steps, record)`: the folder of a run of so many steps, with that beside its table."""

    def make(steps, beside=None):
        folder = tmp_path / f"nano-seed1-{steps}"
        folder.mkdir()
        about = {"backbone": "b" * 16, "recipe": RECIPES[steps], "made_with": None}
        names = (("gateskip", "paper"), ("mod", "bench"), ("dense", "bench"))
        rows = [
            make_row(method=name, semantics=semantics, level=level, axis=axis, **about)
            for name, semantics in names
            for level in (0.0, 0.15)
            for axis in ("net", "tokens")
        ]
        (folder / "table.json").write_text(json.dumps(rows))
        (folder / "answers.json").write_text(json.dumps({"schema": 1, "sweeps": []}))
        (folder / "methods.json").write_text(json.dumps({"schema": 1, "methods": {}}))
        (folder / "config.yaml").write_text("methods: [mod]\nmodel: nano\n")
        (place := folder.parents[1] / "records" / "aaaaaaaaaaaaaaaa").mkdir(parents=True, exist_ok=True)
        Record(place).write("env", {"device": "cpu"})
        write_run(folder, {"state": "done", "failures": [], "warnings": [], "records": [place.name]})
        if beside is not None:
            (folder / "steps.json").write_text(beside if isinstance(beside, str) else json.dumps(beside))
        return folder

    return make


def _board(*folders):
    return read_board([folder / "table.json" for folder in folders])


def test_a_method_that_is_not_converged_is_marked_at_every_level_and_axis(run_of):
    board = _board(run_of(320, record()))
    assert {row.label for row in board.rows if row.not_converged} == {"gateskip@paper"}
    assert sum(row.not_converged for row in board.rows) == 4
    text, page = as_markdown(board, "net"), render(board, "net")
    assert "89.8# [84.0, 95.1]" in text
    assert "# not converged: trained for twice as many steps" in text
    assert "<dt>#</dt>" in page and "<sup>#</sup>" in page


def test_after_enough_steps_nobody_is_marked_and_the_curve_is_shown(run_of):
    board = _board(run_of(640, record()))
    assert not any(row.not_converged for row in board.rows)
    text, page = as_markdown(board, "net"), render(board, "net")
    assert "640 training steps are enough" in text and "640 training steps are enough" in page
    assert "The methods in the table were trained for 640 steps." in page
    assert (
        "After 320 steps tests tell 1 of 1 pairs apart; at 640 these reverse: mod and gateskip@paper on nano_math."
        in page
    )
    assert "After 640 steps tests tell 1 of 1 pairs apart; at 1280 none reverses." in page
    assert "rest on one seed, and so on documents alone" in page
    title = "nano_math: exact_match,strict-match (%) at 15 % saved net FLOPs"
    assert f"### {title}" in text and f"<summary>{title}</summary>" in page
    assert re.search(r"\| gateskip@paper +\| +20\.0# \[10\.0, 30\.0\] +\| +90\.0 \[80\.0, 100\.0\]", text)
    assert re.search(r'<th scope="row">gateskip@paper</th><td>20\.0# \[10\.0, 30\.0\]</td><td>90\.0 ', page)
    assert "dense" not in text.partition("## Training steps")[2]  # it never reaches the level
    assert "is not known" not in page


def test_of_the_largest_number_nothing_is_known(run_of):
    board = _board(run_of(1280, record()))
    assert not any(row.not_converged for row in board.rows)
    assert "Whether a method is converged after 1280 is not known." in render(board, "net")


def test_where_nothing_is_enough_the_board_says_so(run_of):
    assert "None of 320, 640 training steps is shown to be enough." in render(
        _board(run_of(640, record(enough=None))), "net"
    )


def test_without_a_record_nothing_is_said_and_no_column_is_added(run_of):
    with_record, without = _board(run_of(320, record())), _board(run_of(640))
    assert "Training steps" not in render(without, "net") and "<dt>#</dt>" not in render(without, "net")
    assert "Training steps" not in as_markdown(without, "net")
    assert as_csv(with_record).splitlines()[0] == as_csv(without).splitlines()[0]


def test_of_several_runs_each_record_is_for_its_own_recipe(run_of):
    board = _board(run_of(320, record()), run_of(640))
    marked = {(row.label, row.recipe) for row in board.rows if row.not_converged}
    assert marked == {("gateskip@paper", RECIPES[320])}
    assert "## Training steps (seed1-320)" in as_markdown(board, "net")


@pytest.mark.parametrize(
    ("beside", "why"),
    [
        (record(backbone="c" * 16), "another recipe"),
        (record(recipes=dict.fromkeys(STEPS, "steps 320, batch_size 8")), "another recipe"),
        ("[1]", "does not hold what"),
        ("{", "not readable JSON"),
        (record(steps=[0, 1]), "at least one"),
        (record(steps=[320.5, 641]), "whole numbers"),
        (record(scores=[{**record()["scores"][0], "method": "<b>"}]), "A method spec has the form"),
        (record(doublings=[{**record()["doublings"][0], "not_converged": ["<b>"]}]), "has no score of"),
        (record(doublings=[{**record()["doublings"][0], "reversals": [["mod", "calm"]]}]), "has no score of"),
    ],
)
def test_a_record_that_is_damaged_or_of_another_recipe_is_left_out(run_of, beside, why):
    folder = run_of(320, beside)
    board = _board(folder)
    assert board.rows and not board.steps and not any(row.not_converged for row in board.rows)
    (said,) = board.problems
    assert said.startswith("steps.json of nano-seed1-320 is left out: ") and why in said
