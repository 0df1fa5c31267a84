"""Shards, the scripts that launchers write, and stopping when a scheduler asks to."""

import json
import os
import signal
import subprocess
from unittest.mock import Mock

import pytest

from adaptive_bench import registry, stopping
from adaptive_bench.errors import EnvironmentProblem, ToBeContinued, UsageError
from adaptive_bench.jobs.launchers import LaunchResult, slurm
from adaptive_bench.runs import Shard, plan, run, training_work
from adaptive_bench.runs.forecast import Estimator, steps_left
from adaptive_bench.runs.launching import groups_left, launch_request
from adaptive_bench.store.lock import exclusive
from adaptive_bench.training import resume

METHODS = "dense,router_tuned_mod,gateskip,mod,random_skip[trained=true]"


@pytest.mark.parametrize("parts", [1, 3, 9])
def test_shards_are_the_plan_each_cell_once(config_of, parts):
    whole = plan(config_of(METHODS, seeds=(1, 2)))
    shards = [Shard(number, parts).of(whole) for number in range(1, parts + 1)]
    found = sorted(training.folder for shard in shards for training in shard)
    assert found == sorted(training.folder for training in whole.trainings)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_a_shard_has_the_trainings_its_cells_start_from(config_of, lines):
    config = config_of("dense,router_tuned_mod")
    whole = plan(config)
    groups = groups_left(whole, Estimator(config.out), Shard(2, 2))
    assert [str(group.jobs[0].training.spec) for group in groups] == ["dense", "router_tuned_mod"]
    assert [len(group.others) for group in groups] == [0, 1]
    record = whole.trainings[0].record
    with exclusive(record.folder, "it", lines):
        record.begin(whole.trainings[0].content)
        record.fail(RuntimeError("no"))
    groups = groups_left(whole, Estimator(config.out), Shard(2, 2))
    assert [str(group.jobs[0].training.spec) for group in groups] == ["router_tuned_mod"]


def test_the_last_shard_writes_the_table_of_all(config_of):
    config = config_of("dense,random_skip[trained=true],gateskip")
    first = run(config, shard=Shard(1, 2))
    assert first.rows == [] and "left to other shares" in first.elsewhere
    assert not (first.folder / "table.json").exists()
    last = run(config, shard=Shard(2, 2))
    assert last.elsewhere == "" and {row["method"] for row in last.rows} == set(config.methods)
    assert json.loads((last.folder / "run.json").read_text())["state"] == "done"


def test_a_wrong_shard_and_a_cell_that_is_not_planned_are_refused(config_of):
    for shard, cell in (("3/2", None), ("2", None), ("1/2", "abc")):
        with pytest.raises(UsageError, match="--shard"):
            Shard.parse(shard, cell)
    with pytest.raises(UsageError, match="have changed since"):
        Shard.parse(None, "0123").of(plan(config_of("dense")))


def test_a_run_that_is_asked_to_stop_keeps_the_step_it_is_at(config_of, monkeypatch):
    config = config_of("dense", train={"steps": 40, "checkpoint_every": 1000})
    (training,) = plan(config).trainings
    begin = training_work.AdaptiveModel.begin_step

    def ask(model, step, total):
        if step == 7:
            os.kill(os.getpid(), signal.SIGUSR1)
        begin(model, step, total)

    monkeypatch.setattr(training_work.AdaptiveModel, "begin_step", ask)
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(ToBeContinued) as stopped:
        run(config, jobs=1)
    assert stopped.value.exit_code == 75 and training.record.state == "partial"
    assert signal.getsignal(signal.SIGUSR1) == before and not stopping.requested()
    assert resume.steps_done(resume.newest(training.folder / "resume")) == 7 == 40 - steps_left(training)
    monkeypatch.undo()
    assert run(config, jobs=1).exit_code == 0 and len((training.folder / "train.jsonl").read_text().splitlines()) == 40


def test_launchers_are_found_like_other_plugins(config_of, monkeypatch):
    assert {"local", "slurm", "kubernetes"} <= set(registry.names("launchers"))
    seen = []

    def mine(request):
        seen.append(request)
        return LaunchResult(submitted="Given to a friend.")

    monkeypatch.setitem(registry._registered, ("launchers", "friend"), (mine, "this test"))
    outcome = run(config_of("dense,gateskip"), launcher="friend")
    assert outcome.elsewhere == "Given to a friend." and len(seen[0].pending()) == 2
    with pytest.raises(UsageError, match="friend"):
        run(config_of("dense"), launcher="frend")


def test_wrong_resources_and_slurm_that_is_not_there_or_refuses_are_said(config_of, monkeypatch, tmp_path, lines):
    def launch(resources=None):
        config = config_of("dense,gateskip")
        slurm.launch(launch_request(plan(config), config.out / "runs" / "a-run", lines, resources=resources))

    (tmp_path / "resources.yaml").write_text("partitoin: low\n")
    with pytest.raises(UsageError, match="partitoin"):
        launch(tmp_path / "resources.yaml")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentProblem, match="no 'squeue'"):
        launch()
    refused = subprocess.CalledProcessError(1, [], stderr="Invalid partition specified")
    monkeypatch.setattr(slurm.subprocess, "run", Mock(side_effect=refused))
    with pytest.raises(EnvironmentProblem, match="Invalid partition"):
        launch()
