"""`leaderboard submit` and `verify` of a run of seconds."""

import json

import pytest
from small_runs import run_config

from adaptive_bench.leaderboard.entry import read_entry
from adaptive_bench.runs import run


@pytest.fixture
def entry(command, model_folder, tmp_path):
    folder = run(run_config(model_folder, tmp_path / "out", ("random_skip",), seeds=(1, 2))).folder
    said = command("leaderboard submit", str(folder), "-o", "entries", "--authors", "A", "--licence", "MIT")
    assert said.exit_code == 0 and "not timed at batch 1, 8, 32" in " ".join(said.stdout.split())
    return tmp_path / "entries" / folder.name


def test_verify_prints_the_table_and_trains_a_method_again_with_a_fresh_seed(command, entry, model_folder):
    rows = json.loads(command("leaderboard verify", str(entry), "--json").stdout)
    assert rows == json.loads(json.dumps(read_entry(entry).rows))
    assert "random_skip" in command("leaderboard verify", str(entry)).stdout
    again = ("leaderboard", "verify", str(entry), "--model", str(model_folder), "--out", "again", "--rerun")
    said = command(*again, "mod")
    assert said.exit_code == 2 and "--rerun is a method of the entry, got 'mod'" in said.stderr
    said = command(*again, "random_skip")
    assert said.exit_code == 0 and said.stdout.splitlines()[0].split()[-2:] == ["seeds", "rerun"]
    pairs = json.loads(command(*again, "random_skip", "--json").stdout)
    assert [(one["entry"]["level"], one["entry"]["seeds"], one["rerun"]["seeds"]) for one in pairs] == [
        (0.0, 2, 1),
        (0.3, 2, 1),
    ]
    (config,) = entry.parents[1].glob("again/runs/*/config.yaml")
    assert "seeds:\n- 3\n" in config.read_text()


def test_what_is_no_entry_is_not_verified(command, tmp_path):
    said = command("leaderboard verify", str(tmp_path))
    assert said.exit_code == 2 and "An entry has a points.parquet" in said.said
