"""Shards, the scripts that launchers write, and stopping when a scheduler asks to."""

import json
import os
import signal
import subprocess

import pytest
import yaml

from adaptive_bench import registry, stopping
from adaptive_bench.errors import EnvironmentProblem, ToBeContinued, UsageError
from adaptive_bench.jobs.launchers import LaunchResult, kubernetes, slurm
from adaptive_bench.runs import Shard, plan, run, training_work
from adaptive_bench.runs.estimate import Estimator, steps_left
from adaptive_bench.runs.launching import launch_request
from adaptive_bench.runs.work_jobs import groups_left
from adaptive_bench.store.lock import exclusive
from adaptive_bench.store.runs import run_name
from adaptive_bench.training import resume

METHODS = "dense,router_tuned_mod,gateskip,mod,random_skip[trained=true]"


@pytest.fixture
def request_of(config_of, tmp_path, lines):
    """`request_of(methods, resources)`: what a launcher is given."""

    def make(methods="dense,gateskip", resources=None):
        config = config_of(methods)
        file = None
        if resources is not None:
            file = tmp_path / "resources.yaml"
            file.write_text(yaml.safe_dump(resources))
        return launch_request(plan(config), config.out / "runs" / "0123456789abcdef", lines, resources=file)

    return make


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 9])
def test_shards_are_the_plan_each_cell_once(config_of, parts):
    whole = plan(config_of(METHODS, seeds=(1, 2)))
    shards = [Shard(number, parts).of(whole) for number in range(1, parts + 1)]
    assert sorted(training.folder for shard in shards for training in shard) == sorted(
        training.folder for training in whole.trainings
    )
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


def test_a_table_alone_names_what_is_missing(config_of, monkeypatch):
    config = config_of("dense,gateskip")
    training = plan(config).trainings[0]
    run(config, shard=Shard(cells=(training.folder.name,)))
    monkeypatch.setattr(training_work, "train", None)
    outcome = run(config, table_only=True)
    assert {row["method"] for row in outcome.rows} == {"dense"} and outcome.exit_code == 1
    (left_out,) = map(str, outcome.failures)
    retried = f"`adaptive-bench retry {run_name(outcome.folder)}` does it."
    assert left_out == f"train gateskip, seed 1: Not finished: it was not begun. {retried}"
    assert json.loads((outcome.folder / "run.json").read_text())["state"] == "partial"


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


def test_wrong_resources_and_slurm_that_is_not_there_or_refuses_are_said(request_of, monkeypatch):
    with pytest.raises(UsageError, match="partitoin"):
        slurm.launch(request_of(resources={"partitoin": "low"}))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentProblem, match="no 'sbatch'"):
        slurm.launch(request_of())
    refused = subprocess.CompletedProcess([], 1, "", "Invalid partition specified")
    monkeypatch.setattr(slurm.subprocess, "run", lambda *_, **__: refused)
    with pytest.raises(EnvironmentProblem, match="Invalid partition"):
        slurm.launch(request_of())


@pytest.fixture
def manifest(request_of, tmp_path):
    request = request_of(resources={"image": "me/bench:1", "claim": "runs", "mount": str(tmp_path), "gpus": 1})
    launched = kubernetes.launch(request)
    file = request.folder / "kubernetes" / "job.yaml"
    assert f"kubectl create -f {file}" in launched.submitted
    return yaml.safe_load(file.read_text())


def test_kubernetes_gets_one_index_for_each_cell(manifest, request_of):
    spec = manifest["spec"]
    assert (spec["completions"], spec["completionMode"], spec["podReplacementPolicy"]) == (2, "Indexed", "Failed")
    (container,) = spec["template"]["spec"]["containers"]
    shell, flag, script = container["command"]
    names = [job.name for job in request_of().pending()]
    done = subprocess.run(
        [shell, flag, script.replace("exec ", "echo ")],
        env={"JOB_COMPLETION_INDEX": "1", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[-2:] == ["--cell", names[1]]


def test_kubernetes_needs_a_shared_volume(request_of):
    with pytest.raises(UsageError, match="--resources"):
        kubernetes.launch(request_of())
    with pytest.raises(UsageError, match="is not under mount"):
        kubernetes.launch(request_of(resources={"image": "i", "claim": "c", "mount": "/elsewhere"}))
