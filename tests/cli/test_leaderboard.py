import json
import os

import pytest

from adaptive_bench.store.results import write_run
from adaptive_bench.tables.finished import QUICK_NOTE

ROW = {
    "method": "mod",
    "semantics": "bench",
    "task": "gsm8k",
    "metric": "exact_match,strict-match",
    "axis": "net",
    "level": 0.1,
    "score": 0.9,
    "low": None,
    "high": None,
    "seeds": 1,
    "saved_tokens": 0.2,
    "saved_core": 0.15,
    "saved_net": 0.1,
    "status": "ok",
}


def _titles(text):
    return [line.partition(" by ")[2] for line in text.splitlines() if " by " in line and "gsm8k" in line]


def _write(folder, *rows, **about):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.json").write_text(json.dumps(rows))
    write_run(folder, about)


def test_one_run_is_rendered_as_markdown(command, tmp_path):
    _write(tmp_path / "runs", ROW)
    result = command("leaderboard", "--format", "markdown")
    assert result.exit_code == 0
    assert "| mod" in result.stdout


def test_the_terminal_is_the_default_and_fits_it(command, tmp_path):
    _write(tmp_path / "runs", *(ROW | {"level": level} for level in (0.0, 0.05, 0.1, 0.15)))
    text = command("leaderboard").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "a bar for each of 4 levels" in text
    wide = command("leaderboard", "--wide").stdout
    assert "saved there" in wide and "a bar for each" not in wide


def test_by_default_it_shows_what_the_run_was_matched_on(command, tmp_path):
    rows = [ROW | {"axis": axis, "phase": phase} for axis in ("net", "tokens") for phase in ("all", "decode")]
    _write(tmp_path / "runs", *rows)
    assert _titles(command("leaderboard").stdout) == ["saved net FLOPs"]
    _write(tmp_path / "runs", *rows, match_on="tokens", match_phase="decode")
    assert _titles(command("leaderboard").stdout) == ["saved tokens of decode"]
    assert _titles(command("leaderboard", "--phase", "all").stdout) == ["saved tokens"]
    assert len(_titles(command("leaderboard", "--full").stdout)) == 4


def test_an_axis_that_is_pooled_only_is_shown_whatever_phase_was_matched(command, tmp_path):
    _write(tmp_path / "runs", *(ROW | about for about in ({"phase": "decode"}, {"axis": "claimed", "phase": "all"})))
    write_run(tmp_path / "runs", {"match_on": "net", "match_phase": "decode"})
    assert _titles(command("leaderboard", "--axis", "claimed").stdout) == ["claimed saving"]


def test_a_projection_is_shown_only_when_asked_for(command, tmp_path):
    projected = ROW | {"axis": "projected", "phase": "all", "projected_shape": "llama-3.2-1b"}
    _write(tmp_path / "runs", ROW, projected)
    assert "llama" not in command("leaderboard", "--full").stdout
    text = command("leaderboard", "--axis", "projected").stdout
    assert _titles(text) == ["saved net FLOPs, projected (llama-3.2-1b)"]


def test_tables_of_older_versions_are_pooled(command, tmp_path):
    _write(tmp_path / "runs", ROW)
    assert _titles(command("leaderboard").stdout) == ["saved net FLOPs"]
    result = command("leaderboard", "--phase", "decode")
    assert result.exit_code == 1
    assert "there is net." in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--axis", "tokns"], "Did you mean 'tokens'?"),
        (["--phase", "both"], "all, prefill, decode"),
        (["--format", "markdwn"], "'markdown'"),
        (["--wide", "--format", "markdown"], "--format terminal"),
    ],
)
def test_a_value_that_does_not_exist_is_refused(command, tmp_path, arguments, message):
    _write(tmp_path / "runs", ROW)
    result = command("leaderboard", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_without_a_folder_the_newest_run_is_shown(command, tmp_path):
    for age_s, name in ((20, "older"), (10, "newer")):
        _write(tmp_path / "runs" / name, ROW | {"task": name})
        os.utime(tmp_path / "runs" / name / "table.json", times=(1e9 - age_s, 1e9 - age_s))
    text = command("leaderboard").stdout
    assert "newer" in text
    assert "older" not in text
    both = command("leaderboard", "runs").stdout
    assert "newer" in both
    assert "older" in both


def test_runs_are_joined_and_only_a_disagreement_shows_where_a_score_comes_from(command, tmp_path):
    _write(tmp_path / "a", ROW, ROW | {"method": "dense"})
    _write(tmp_path / "b", ROW | {"score": 0.5}, ROW | {"method": "dense"}, ROW | {"method": "gateskip"})
    scores = command("leaderboard", "a", "b", "--format", "markdown").stdout.partition("Saved there")[0]
    methods = [line.split("|")[1].strip() for line in scores.splitlines() if line.startswith("| ")]
    assert methods == ["method", "mod (a)", "mod (b)", "dense", "gateskip"]


def test_runs_of_one_name_are_told_apart_by_their_folders(command, tmp_path):
    for out, score in (("here", 0.9), ("there", 0.5)):
        _write(tmp_path / out / "nano-mod-seed1-3f9a2c1b", ROW | {"score": score})
    text = command("leaderboard", "here", "there", "--format", "markdown").stdout
    assert "mod (here/nano-mod-seed1-3f9a2c1b)" in text and "mod (there/" in text
    text = command("leaderboard", "here", "--format", "markdown").stdout
    assert "| mod " in text and "mod (" not in text


def test_rows_of_other_conditions_have_a_table_of_their_own_that_says_what_differs(command, tmp_path):
    nano = {"model": "nano", "backbone": "a" * 16, "recipe": "steps 320, batch_size 32", "documents": 8, "shots": 0}
    other = {"model": "tiny", "backbone": "b" * 16, "documents": 4}
    rows = [ROW | {"method": "dense", "level": 0.0, "score": 1.0}, ROW, ROW | {"task": "csqa"}]
    _write(tmp_path / "a", *(row | nano for row in rows))
    _write(tmp_path / "b", *(row | nano | other | {"score": 0.5} for row in rows[:2]))
    _write(tmp_path / "c", ROW | nano | {"method": "calm"})
    titles = ["gsm8k (model nano, 8 documents)", "gsm8k (model tiny, 4 documents)", "csqa"]
    printed = command("leaderboard", "a", "b", "c").stdout
    assert [line.partition(":")[0] for line in printed.splitlines() if " by " in line] == titles
    markdown = command("leaderboard", "a", "b", "c", "--format", "markdown").stdout
    assert [line[3:].partition(":")[0] for line in markdown.splitlines() if line.startswith("## ")] == titles
    assert "mod (" not in printed and "calm" in printed.partition(titles[1])[0]
    assert command("leaderboard", "build", "a", "b", "c", "-o", "site", "--one-file").exit_code == 0
    page = (tmp_path / "site" / "index.html").read_text()
    parts = json.loads(page.partition('id="data">')[2].partition("</script>")[0])["parts"].values()
    boards = [{table["task"] for table in part["tables"]} for part in parts if part.get("tables")]
    assert sorted(boards, key=len) == [{"gsm8k"}, {"gsm8k", "csqa"}]  # one for each model


def test_build_writes_a_page_and_names_it(command, tmp_path):
    _write(tmp_path / "runs", ROW, ROW | {"method": "<b>"})
    result = command("leaderboard", "build", "runs", "-o", "site")
    assert result.exit_code == 0
    assert "site/index.html" in result.stdout
    assert "Row 1 of runs/table.json is left out" in result.stderr
    assert "makes no network requests" in (tmp_path / "site" / "index.html").read_text()


def test_build_leaves_a_folder_of_something_else_as_it_is(command, tmp_path):
    _write(tmp_path / "runs", ROW)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("mine")
    refused = command("leaderboard", "build", "runs")
    assert refused.exit_code == 2 and "holds something else: index.html." in " ".join(refused.stderr.split())
    assert [one.read_text() for one in (tmp_path / "site").iterdir()] == ["mine"]
    assert command("leaderboard", "build", "runs", "-o", "board").exit_code == 0
    assert command("leaderboard", "build", "runs", "-o", "board").exit_code == 0


def test_a_first_look_is_said_with_its_table(command, tmp_path):
    _write(tmp_path / "runs", ROW)
    assert "Quick" not in command("leaderboard").stderr
    write_run(tmp_path / "runs", {"warnings": [f"{QUICK_NOTE}: a first look."]})
    assert f"Note: runs: {QUICK_NOTE}" in command("leaderboard").stderr


def test_show_may_be_left_out(command, tmp_path):
    _write(tmp_path / "runs", ROW)
    assert command("leaderboard", "show", "runs").stdout == command("leaderboard", "runs").stdout


def test_an_axis_without_phases_is_not_blamed_on_the_run(command, tmp_path):
    _write(tmp_path / "runs", ROW, ROW | {"axis": "bytes"})
    result = command("leaderboard", "--axis", "bytes", "--phase", "decode")
    said = " ".join(result.stderr.split())
    assert result.exit_code == 1 and "Leave --phase out, or give --axis net, core or tokens." in said
    assert "give the same `adaptive-bench run` again" not in said
