import json
import os

import pytest

from adaptive_bench.store.results import write_run
from adaptive_bench.tables.finished import QUICK_NOTE

ROW = {"method": "mod", "semantics": "bench", "task": "gsm8k", "metric": "exact_match,strict-match", "axis": "net"}
ROW |= {"level": 0.1, "score": 0.9, "low": None, "high": None, "seeds": 1, "status": "ok"}
ROW |= {"saved_tokens": 0.2, "saved_core": 0.15, "saved_net": 0.1}


@pytest.fixture
def board(command, tmp_path):
    """`board("--full")`: the command, in a folder in which `board.write` puts runs."""

    def given(arguments=""):
        return command(f"leaderboard {arguments}")

    def write(name, *rows, **about):
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "table.json").write_text(json.dumps(rows))
        write_run(folder, about)

    given.write = write
    return given


def _titles(text):
    return [line.partition(" by ")[2] for line in text.splitlines() if " by " in line and "gsm8k" in line]


def test_the_terminal_is_the_default_and_fits_it(board):
    board.write("runs", *(ROW | {"level": level} for level in (0.0, 0.05, 0.1, 0.15)))
    text = board().stdout
    assert max(map(len, text.splitlines())) <= 80 and "a bar for each of 4 levels" in text
    wide = board("--wide").stdout
    assert "saved there" in wide and "a bar for each" not in wide
    assert "| mod" in board("--format markdown").stdout
    assert board("show runs").stdout == board("runs").stdout == text


def test_by_default_it_shows_what_the_run_was_matched_on(board):
    rows = [ROW | {"axis": axis, "phase": phase} for axis in ("net", "tokens") for phase in ("all", "decode")]
    board.write("runs", *rows)
    assert _titles(board().stdout) == ["saved net FLOPs"]
    board.write("runs", *rows, match_on="tokens", match_phase="decode")
    assert _titles(board().stdout) == ["saved tokens of decode"]
    assert _titles(board("--phase all").stdout) == ["saved tokens"]
    assert len(_titles(board("--full").stdout)) == 4


def test_an_axis_that_is_pooled_only_is_shown_whatever_phase_was_matched(board):
    rows = [ROW | about for about in ({"phase": "decode"}, {"axis": "claimed", "phase": "all"})]
    board.write("runs", *rows, match_on="net", match_phase="decode")
    assert _titles(board("--axis claimed").stdout) == ["claimed saving"]


def test_a_projection_is_shown_only_when_asked_for(board):
    board.write("runs", ROW, ROW | {"axis": "projected", "phase": "all", "projected_shape": "llama-3.2-1b"})
    assert "llama" not in board("--full").stdout
    assert _titles(board("--axis projected").stdout) == ["saved net FLOPs, projected (llama-3.2-1b)"]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        ("--axis tokns", 2, "Did you mean 'tokens'?"),
        ("--phase both", 2, "all, prefill, decode"),
        ("--format markdwn", 2, "'markdown'"),
        ("--wide --format markdown", 2, "--format terminal"),
        ("--phase decode", 1, "give the same `adaptive-bench run` again"),  # a table of an older version is pooled
        ("--axis bytes --phase decode", 1, "Leave --phase out, or give --axis net, core or tokens."),
        ("--axis time", 1, "`adaptive-bench time`"),
    ],
)
def test_a_table_that_does_not_exist_is_refused_with_how_to_get_one(board, arguments, exit_code, message):
    board.write("runs", ROW, ROW | {"axis": "bytes"})
    result = board(arguments)
    assert result.exit_code == exit_code and message in result.said


def test_without_a_folder_the_newest_run_is_shown(board, tmp_path):
    for age_s, name in ((20, "older"), (10, "newer")):
        board.write(f"runs/{name}", ROW | {"task": name})
        os.utime(tmp_path / "runs" / name / "table.json", times=(1e9 - age_s, 1e9 - age_s))
    text, both = board().stdout, board("runs").stdout
    assert "newer" in text and "older" not in text and "newer" in both and "older" in both


def test_runs_are_joined_and_only_a_disagreement_shows_where_a_score_comes_from(board):
    board.write("a", ROW, ROW | {"method": "dense"})
    board.write("b", ROW | {"score": 0.5}, ROW | {"method": "dense"}, ROW | {"method": "gateskip"})
    scores = board("a b --format markdown").stdout.partition("Saved there")[0]
    methods = [line.split("|")[1].strip() for line in scores.splitlines() if line.startswith("| ")]
    assert methods == ["method", "mod (a)", "mod (b)", "dense", "gateskip"]
    for out, score in (("here", 0.9), ("there", 0.5)):  # runs of one name are told apart by their folders
        board.write(f"{out}/nano-mod-seed1-3f9a2c1b", ROW | {"score": score})
    text = board("here there --format markdown").stdout
    assert "mod (here/nano-mod-seed1-3f9a2c1b)" in text and "mod (there/" in text


def test_rows_of_other_conditions_have_a_table_of_their_own_that_says_what_differs(board, tmp_path):
    nano = {"model": "nano", "backbone": "a" * 16, "recipe": "steps 320, batch_size 32", "documents": 8, "shots": 0}
    other = {"model": "tiny", "backbone": "b" * 16, "documents": 4}
    rows = [ROW | {"method": "dense", "level": 0.0, "score": 1.0}, ROW, ROW | {"task": "csqa"}]
    board.write("a", *(row | nano for row in rows))
    board.write("b", *(row | nano | other | {"score": 0.5} for row in rows[:2]))
    board.write("c", ROW | nano | {"method": "calm"})
    titles = ["gsm8k (model nano, 8 documents)", "gsm8k (model tiny, 4 documents)", "csqa"]
    printed = board("a b c").stdout
    assert [line.partition(":")[0] for line in printed.splitlines() if " by " in line] == titles
    markdown = board("a b c --format markdown").stdout
    assert [line[3:].partition(":")[0] for line in markdown.splitlines() if line.startswith("## ")] == titles
    assert "mod (" not in printed and "calm" in printed.partition(titles[1])[0]
    assert board("build a b c -o site --one-file").exit_code == 0
    page = (tmp_path / "site" / "index.html").read_text()
    parts = json.loads(page.partition('id="data">')[2].partition("</script>")[0])["parts"].values()
    boards = [{table["task"] for table in part["tables"]} for part in parts if part.get("tables")]
    assert sorted(boards, key=len) == [{"gsm8k"}, {"gsm8k", "csqa"}]  # one for each model


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


def test_a_first_look_is_said_with_its_table(board):
    board.write("runs", ROW)
    assert "Quick" not in board().stderr
    board.write("runs", ROW, warnings=[f"{QUICK_NOTE}: a first look."])
    assert f"Note: runs: {QUICK_NOTE}" in board().stderr


def test_a_table_of_the_paper_alone_and_beside_a_run(board):
    assert "paper_ablations" in board("paper").stdout.replace("\n", "")
    alone = board("paper 12").stdout
    assert "0.57" in alone and "not measured here" in alone and "here: " not in alone
    row = ROW | {"task": "nano_math", "axis": "tokens", "phase": "all", "level": 0.15, "score": 0.42, "model": "nano"}
    board.write("one", row | {"low": 0.4, "high": 0.5})
    beside = board("paper 1 one").stdout
    assert "3.96 ± 1.67" in beside and "42.0" in beside
    assert "| here: `mod`" in board("paper 1 one --format markdown").stdout
    plain = json.loads(board("paper 1 one --format json").stdout)
    assert [one["label"] for one in plain[0]["rows"] if one["label"]] == ["mod"]
    wrong = board("paper 77")
    assert wrong.exit_code == 2 and "got 77" in wrong.stderr
