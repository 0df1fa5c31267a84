import json
import os

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


def _write(folder, *rows):
    folder.mkdir(parents=True)
    (folder / "table.json").write_text(json.dumps(rows))


def test_one_run_is_rendered_as_markdown(command, tmp_path):
    _write(tmp_path / "runs", ROW)
    result = command("leaderboard")
    assert result.exit_code == 0
    assert "| mod" in result.stdout


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


def test_one_axis_can_be_chosen(command, tmp_path):
    _write(tmp_path / "runs", ROW, ROW | {"axis": "tokens"})
    text = command("leaderboard", "--axis", "tokens").stdout
    assert "saved tokens" in text
    assert "saved net" not in text


def test_runs_are_joined_and_only_a_disagreement_shows_where_a_score_comes_from(command, tmp_path):
    _write(tmp_path / "a", ROW, ROW | {"method": "dense"})
    _write(tmp_path / "b", ROW | {"score": 0.5}, ROW | {"method": "dense"}, ROW | {"method": "gateskip"})
    scores = command("leaderboard", "a", "b").stdout.partition("Measured saving")[0]
    methods = [line.split("|")[1].strip() for line in scores.splitlines() if line.startswith("| ")]
    assert methods == ["method", "mod (a)", "mod (b)", "dense", "gateskip"]


def test_no_table_says_what_to_do(command):
    result = command("leaderboard", "nowhere")
    assert result.exit_code == 1
    assert "adaptive-bench run" in result.stderr


def test_damaged_table_is_named(command, tmp_path):
    _write(tmp_path / "runs")
    (tmp_path / "runs" / "table.json").write_text("[{")
    result = command("leaderboard")
    assert result.exit_code == 1
    assert "table.json" in result.stderr


def test_unknown_format_gets_a_suggestion(command, tmp_path):
    result = command("leaderboard", "--format", "markdwn")
    assert result.exit_code == 2
    assert "'markdown'" in result.stderr
