import json
import os
from pathlib import Path

import pytest
from small_runs import run_config

from adaptive_bench.leaderboard.entry import read_entry
from adaptive_bench.runs import run
from adaptive_bench.store.keys import TABLES
from adaptive_bench.store.runs import write_run
from adaptive_bench.tables.comparability import QUICK_NOTE

ENTRY = Path(__file__).parents[2] / "leaderboard" / "entries" / "nano"
ROW = {"method": "mod", "semantics": "bench", "task": "gsm8k", "metric": "exact_match,strict-match", "axis": "net"}
ROW |= {"level": 0.1, "saved": 0.1, "score": 0.9, "low": None, "high": None, "seeds": 1, "status": "ok"}
ROW |= {"saved_tokens": 0.2, "saved_core": 0.15, "saved_net": 0.1}


@pytest.fixture
def board(command, tmp_path):
    """`board("--all")`: the command, in a folder in which `board.write` puts runs."""

    def given(arguments=""):
        return command(f"leaderboard {arguments}")

    def write(name, *rows, **about):
        (folder := tmp_path / name).mkdir(parents=True, exist_ok=True)
        (folder / "table.json").write_text(json.dumps(rows))
        write_run(folder, {"tables": TABLES} | about)

    given.write = write
    return given


def test_the_terminal_is_the_default_and_fits_it(board):
    dense = ROW | {"method": "dense", "score": 1.0}
    board.write("runs", *(row | {"level": level} for level in (0.05, 0.1, 0.15) for row in (dense, ROW)))
    text = board().stdout
    assert max(map(len, text.splitlines())) <= 80 and text.startswith("15 % net FLOPs saved: gsm8k (exact_match)")
    lines = [line.split() for line in text.splitlines()]
    assert ["1", "mod", "90", "–", "20", "%", "–"] in lines and "2 other levels: --all." in text
    everything = board("--all").stdout
    assert [line.split(" %")[0] for line in everything.splitlines() if ": gsm8k" in line] == ["5", "10", "15"]
    assert "chooses" in everything and "chooses" not in text and "mod " in board("--format markdown").stdout
    assert board("show runs").stdout == board("runs").stdout == text


def test_it_shows_what_the_run_was_matched_on_and_not_tasks_of_which_the_axis_knows_nothing(board):
    board.write("runs", ROW | {"axis": "tokens", "phase": "decode"})
    assert board().stdout.startswith("10 % token-branches skipped in decode: gsm8k")
    dense = ROW | {"method": "dense", "score": 1.0}
    silent = {"task": "csqa", "score": None, "saved": None, "status": "missing", "seeds": 0}
    board.write("runs", *(row | more for more in ({}, silent) for row in (dense, ROW)))
    text = board().stdout
    assert text.startswith("10 % net FLOPs saved: gsm8k (exact_match)") and "csqa" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [("--format markdwn", "'markdown'"), ("--all --format markdown", "--format terminal"), ("--axis net", "--axis")],
)
def test_a_list_that_does_not_exist_is_refused_with_how_to_get_one(board, arguments, message):
    board.write("runs", ROW)
    result = board(arguments)
    assert result.exit_code == 2 and message in result.said


def test_without_a_folder_the_newest_run_is_shown_and_a_first_look_said_with_it(board, tmp_path):
    for age_s, name in ((20, "older"), (10, "newer")):
        board.write(f"runs/{name}", ROW | {"task": name})
        os.utime(tmp_path / "runs" / name / "table.json", times=(1e9 - age_s, 1e9 - age_s))
    text, both = board().stdout, board("runs").stdout
    assert "newer" in text and "older" not in text and "newer" in both and "older" in both
    assert "Quick" not in board().stderr
    board.write("runs/newer", ROW, warnings=[f"{QUICK_NOTE}: a first look."])
    assert f"Note: newer: {QUICK_NOTE}" in board().stderr


def test_runs_are_joined_and_only_a_disagreement_shows_where_a_score_comes_from(board):
    def methods(arguments):
        lines = [line.split("|") for line in board(f"{arguments} --format markdown").stdout.splitlines()]
        found = [line[2].strip() for line in lines if len(line) > 2 and "--" not in line[2]]
        return sorted(name for name in found if name != "method")

    board.write("a", ROW, ROW | {"method": "dense", "score": 1.0})
    board.write("b", ROW | {"score": 0.5}, *(ROW | {"method": name, "score": 1.0} for name in ("dense", "gateskip")))
    assert methods("a b") == ["dense", "gateskip", "mod \\(a\\)", "mod \\(b\\)"]
    for out, score in (("here", 0.9), ("there", 0.5)):  # runs of one name are told apart by their folders
        board.write(f"{out}/nano-mod-seed1-3f9a2c1b", ROW | {"score": score})
    text = board("here there --format markdown").stdout
    assert "mod \\(here/nano-mod-seed1-3f9a2c1b\\)" in text and "mod \\(there/" in text


def test_models_have_lists_of_their_own(board, tmp_path):
    nano = {"model": "nano", "backbone": "a" * 16, "recipe": "steps 320, batch_size 32", "documents": 8, "shots": 0}
    other = {"model": "tiny", "backbone": "b" * 16, "documents": 4}
    rows = [ROW | {"method": "dense", "score": 1.0}, ROW, ROW | {"task": "csqa"}]
    board.write("a", *(row | nano for row in rows))
    board.write("b", *(row | nano | other | {"score": 0.5} for row in rows[:2]))
    board.write("c", ROW | nano | {"method": "calm"})
    printed = board("a b c").stdout
    titles = [line for line in printed.splitlines() if "saved: " in line]
    # The nano model, which the suite brings along, comes after the models of users.
    assert [line.partition(":")[0] for line in titles] == ["tiny", "nano"]
    tiny_alone, _, nano_alone = printed.partition(titles[1])
    assert "calm" in nano_alone and "calm" not in tiny_alone and "mod (" not in printed
    markdown = board("a b c --format markdown").stdout
    assert [line[3:].partition(":")[0] for line in markdown.splitlines() if line.startswith("## ")] == ["tiny", "nano"]


def test_the_page_of_a_method_has_what_it_wrote_if_the_task_writes(board, tmp_path):
    assert board(f"build {ENTRY} -o entry").exit_code == 0
    page = (tmp_path / "entry" / "methods" / "gateskip.html").read_text()
    assert " on nano_qa, nano</summary>" in page and " on nano_text, nano</summary>" not in page


def test_build_writes_a_page_and_names_what_is_left_out(board, tmp_path):
    board.write("runs", ROW, ROW | {"method": "<b>"})
    result = board("build runs -o board")
    assert result.exit_code == 0 and "board/index.html" in result.stdout
    assert "Row 1 of runs/table.json is left out" in result.stderr
    assert "makes no network requests" in (tmp_path / "board" / "index.html").read_text()
    assert board("build runs -o board").exit_code == 0
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("mine")
    refused = board("build runs")
    assert refused.exit_code == 2 and "holds something else: index.html." in refused.said
    assert [one.read_text() for one in (tmp_path / "site").iterdir()] == ["mine"]


def test_a_table_of_the_paper_alone_and_beside_a_run(board):
    assert "paper_ablations" in board("paper").stdout.replace("\n", "")
    alone = board("paper 12").stdout
    assert "0.57" in alone and "not measured here" in alone and "here: " not in alone
    beside = board(f"paper 1 {ENTRY}").stdout
    assert "3.96 ± 1.67" in beside and "by saved tokens: nano" in beside
    assert "| here: `layerskip`" in board(f"paper 1 {ENTRY} --format markdown").stdout
    plain = json.loads(board(f"paper 1 {ENTRY} --format json").stdout)
    assert "layerskip" in [one["label"] for one in plain[0]["rows"]]
    wrong = board("paper 77")
    assert wrong.exit_code == 2 and "got 77" in wrong.stderr


# `submit` and `verify` of a run of seconds.


@pytest.fixture
def entry(command, model_folder, tmp_path):
    folder = run(run_config(model_folder, tmp_path / "out", ("random_skip",), seeds=(1, 2))).folder
    said = command("leaderboard submit", str(folder), "-o", "entries", "--authors", "A", "--licence", "MIT")
    assert said.exit_code == 0, said.stderr
    return tmp_path / "entries" / folder.name


def test_verify_prints_the_table_and_a_method_can_be_trained_again(command, entry, model_folder, tmp_path):
    rows = json.loads(command("leaderboard verify", str(entry), "--json").stdout)
    assert rows == json.loads(json.dumps(read_entry(entry).rows))
    assert "random_skip" in command("leaderboard verify", str(entry)).stdout
    again = (
        "--model",
        str(model_folder),
        "--methods",
        "random_skip",
        "--no-controls",
        "--seeds",
        "3,",
        "--out",
        "again",
    )
    said = command("run --config", str(entry / "config.yaml"), *again)
    assert said.exit_code == 0, said.stderr
    (folder,) = (tmp_path / "again" / "runs").iterdir()
    pairs = zip(rows, json.loads((folder / "table.json").read_text()), strict=True)
    assert [(one["level"], one["seeds"], other["level"], other["seeds"]) for one, other in pairs] == [
        (0.0, 2, 0.0, 1),
        (0.3, 2, 0.3, 1),
    ]


def test_what_is_no_entry_is_not_verified(command, tmp_path):
    said = command("leaderboard verify", str(tmp_path))
    assert said.exit_code == 2 and "An entry has a points.parquet" in said.said
