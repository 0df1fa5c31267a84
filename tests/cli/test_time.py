import json

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from adaptive_bench.store.results import write_run


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def small(folder, monkeypatch):
    monkeypatch.setattr("adaptive_bench.cli.strict.quiet", lambda: None)
    return ("--model", str(folder), "--batch", "1", "--prompt", "6", "--new", "3", "--rounds", "2", "--device", "cpu")


def test_a_table_per_setting_with_the_plain_model_first(command, small):
    result = command("time", *small, "--methods", "dense,gateskip", "--savings", "0,0.3")
    assert result.exit_code == 0, result.stderr
    assert "batch 1, 6+3 tokens" in result.stdout
    lines = [line.split()[0] for line in result.stdout.splitlines() if line]
    assert lines.index("plain") < lines.index("dense") < lines.index("gateskip")
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


def test_json_is_what_the_records_hold(command, small, tmp_path):
    result = command("time", *small, "--methods", "random_skip", "--json")
    (record,) = json.loads(result.stdout)
    (file,) = (tmp_path / "runs" / "time").glob("*.json")
    written = json.loads(file.read_text())
    written.pop("content_sha256")
    assert written == record
    assert [round(point["requested"], 2) for point in record["points"]] == [0.0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize("wrong", [("--batch", "many"), ("--savings", "half"), ("--rounds", "0"), ("--precision", "x")])
def test_wrong_values_are_named(command, small, wrong):
    result = command("time", *small, *wrong)
    assert result.exit_code == 2
    assert wrong[0] in result.stderr


def test_the_leaderboard_by_time_names_the_command_where_nothing_was_timed(command, tmp_path):
    row = {"method": "mod", "semantics": "bench", "task": "t", "metric": "acc", "axis": "net", "level": 0.1}
    row |= {"score": 0.9, "low": None, "high": None, "status": "ok"}
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "table.json").write_text(json.dumps([row]))
    write_run(tmp_path / "runs", {})
    result = command("leaderboard", "--axis", "time")
    assert result.exit_code == 1
    assert "adaptive-bench time" in result.stderr
