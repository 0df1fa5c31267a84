import functools
import json

import pytest
from pyarrow import parquet


@pytest.fixture
def small(model_folder):
    how = ("--batch", "1", "--prompt", "6", "--new", "3", "--rounds", "2", "--device", "cpu")
    return ("--model", str(model_folder), *how)


def test_a_table_per_setting_with_the_plain_model_first_and_json_is_what_the_records_hold(command, small, tmp_path):
    result = command("time", *small, "--methods", "dense,gateskip", "--savings", "0,0.3")
    assert result.exit_code == 0, result.stderr
    assert "batch 1, 6+3 tokens" in result.stdout
    lines = [line.split()[0] for line in result.stdout.splitlines() if line]
    assert lines.index("plain") < lines.index("dense") < lines.index("gateskip")
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    (record,) = json.loads(command("time", *small, "--methods", "random_skip", "--json").stdout)
    assert record in [json.loads(file.read_text()) for file in (tmp_path / "runs" / "time").glob("*.json")]
    assert [round(point["requested"], 2) for point in record["points"]] == [0.0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize("wrong", ["--batch many", "--savings half", "--rounds 0", "--precision x"])
def test_wrong_values_are_named(command, small, wrong):
    result = command("time", *small, *wrong.split())
    assert result.exit_code == 2 and wrong.split()[0] in result.stderr


def test_a_run_is_timed_at_its_end_at_every_batch_size_and_its_entry_has_it(command, tmp_path, monkeypatch):
    from adaptive_bench.runs import timing

    small = functools.partial(timing.TimingRequest, prompt=6, new=2, rounds=1, savings=(0.0, 0.2))
    monkeypatch.setattr(timing, "TimingRequest", small)
    run = ("run", "--config", "smoke", "--device", "cpu", "--jobs", "1")
    assert command(*run).exit_code == 0
    assert command(*run, "--time").exit_code == 0
    assert command("leaderboard submit last -o timed --authors A --licence MIT").exit_code == 0
    (folder,) = (tmp_path / "runs" / "runs").iterdir()
    sweeps = json.loads((folder / "answers.json").read_text())["sweeps"]
    times = [point["times"] for sweep in sweeps for point in sweep["points"]]
    assert {name.partition(",")[0] for one in times for name in one} == {"batch 1", "batch 8", "batch 32"}
    listed = command("leaderboard show last --all").stdout
    assert all(f"batch {batch}," in listed for batch in (1, 8, 32))
    (timings,) = (tmp_path / "timed").glob("*/timings.parquet")
    assert len(set(parquet.read_table(timings)["setting"].to_pylist())) == 3
    assert command("leaderboard build timed -o site").exit_code == 0


@pytest.mark.parametrize("more", ["--table-only", "--shard 1/2", "--launcher slurm"])
def test_a_part_of_a_run_or_one_elsewhere_is_not_timed_at_its_end(command, more):
    result = command("run --config smoke --time", *more.split())
    assert result.exit_code == 2 and "adaptive-bench time --run RUN" in result.stderr.replace("\n", " ")
