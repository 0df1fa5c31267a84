import json

from adaptive_bench.store.results import write_run


def _run(folder, rows):
    folder.mkdir()
    (folder / "table.json").write_text(json.dumps(rows))
    write_run(folder, {})


def test_a_table_of_the_paper_alone_and_beside_a_run(command, tmp_path):
    assert "paper_ablations" in command("leaderboard", "paper").stdout.replace("\n", "")
    alone = command("leaderboard", "paper", "12").stdout
    assert "0.57" in alone and "not measured here" in alone and "here: " not in alone
    row = {"method": "mod", "semantics": "bench", "task": "nano_math", "metric": "exact_match,strict-match"}
    row |= {"axis": "tokens", "phase": "all", "level": 0.15, "score": 0.42, "low": 0.4, "high": 0.5, "status": "ok"}
    _run(tmp_path / "one", [row | {"model": "nano"}])
    beside = command("leaderboard", "paper", "1", "one").stdout
    assert "3.96 ± 1.67" in beside and "42.0" in beside
    text = command("leaderboard", "paper", "1", "one", "--format", "markdown").stdout
    assert "| here: `mod`" in text
    plain = json.loads(command("leaderboard", "paper", "1", "one", "--format", "json").stdout)
    assert [one["label"] for one in plain[0]["rows"] if one["label"]] == ["mod"]
    wrong = command("leaderboard", "paper", "77")
    assert wrong.exit_code == 2 and "got 77" in wrong.stderr
