"""Shards, what the launchers Slurm and Kubernetes write, and stopping when a scheduler asks to."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import launch_request

from adaptive_bench import registry, stopping
from adaptive_bench.errors import EnvironmentProblem, ToBeContinued, UsageError
from adaptive_bench.jobs.launchers import LaunchResult, kubernetes, slurm
from adaptive_bench.jobs.launchers.kubernetes import PodResources, job_prefix
from adaptive_bench.runs import Shard, plan, run, training_work
from adaptive_bench.runs.forecast import Estimator, steps_left
from adaptive_bench.runs.launching import jobs_left
from adaptive_bench.runs.trained import run_name
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
    jobs = jobs_left(whole, Estimator(config.out), Shard(2, 2))
    assert [(str(job.training.spec), len(job.sweeps)) for job in jobs] == [
        ("dense", 0),
        ("router_tuned_mod", 0),
        ("router_tuned_mod", 1),
    ]
    assert [job.is_ready for job in jobs] == [True, False, False]
    record = whole.trainings[0].record
    with exclusive(record.folder, "it", lines):
        record.begin(whole.trainings[0].content)
        record.fail(RuntimeError("no"))
    jobs = jobs_left(whole, Estimator(config.out), Shard(2, 2))
    assert [str(job.training.spec) for job in jobs] == ["router_tuned_mod"] * 2


def test_the_last_shard_writes_the_table_of_all(config_of):
    config = config_of("dense,random_skip[trained=true],gateskip")
    first = run(config, shard=Shard(1, 2))
    assert first.rows == [] and "Left to other jobs" in first.elsewhere
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


def test_wrong_resources_and_slurm_that_is_not_there_or_refuses_are_said(config_of, monkeypatch, tmp_path):
    def launch(resources=None):
        config = config_of("dense,gateskip")
        slurm.launch(launch_request(config, config.out / "runs" / "a-run", resources))

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


# What the launcher `kubernetes` writes is what the API server takes, whatever runs, models and methods are called.


FULL = """
image: registry.example.org/team/adaptive-bench@sha256:0123456789abcdef
claim: runs
mount: {mount}
namespace: research
cpus: 8
memory: 32Gi
gpus: 2
processes: 2
labels: {{kueue.x-k8s.io/queue-name: nightly}}
pod:
  serviceAccountName: bench
  imagePullSecrets: [{{name: registry}}]
  nodeSelector: {{cloud.google.com/gke-accelerator: nvidia-h100-80gb}}
  tolerations: [{{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}}]
  securityContext: {{runAsNonRoot: true, runAsUser: 1000, fsGroup: 1000, seccompProfile: {{type: RuntimeDefault}}}}
  volumes: [{{name: shared-memory, emptyDir: {{medium: Memory, sizeLimit: 16Gi}}}}]
container:
  env:
  - {{name: HF_HOME, value: /data/hub}}
  - {{name: HF_TOKEN, valueFrom: {{secretKeyRef: {{name: hugging-face, key: token}}}}}}
  securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
  volumeMounts: [{{name: shared-memory, mountPath: /dev/shm}}]
"""
GENERATED, LABEL = 58, re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123, of at most 63 characters


def last_pod(job):
    """What the server calls the last pod of a job: the start of a name, five characters of its own, and an index."""
    return f"{job['metadata']['generateName'][:GENERATED]}x7k2p-{job['spec'].get('completions', 1) - 1}"


def manifests(folder: Path, cells: int = 2, **resources):
    given = PodResources.model_validate({"image": "i", "claim": "c", "mount": "/data"} | resources)
    request = SimpleNamespace(folder=folder, command=lambda *more, **_: " ".join(["run", *more]))
    job = kubernetes.manifest(request, given, [f"{n:064}" for n in range(cells)])
    return job, kubernetes.table_manifest(request, given)


@pytest.fixture
def request_of(config_of, tmp_path):
    """`request_of(text)`: what the launcher is given of a run of two cells, with these resources or none."""
    config = config_of("dense,gateskip")
    file = tmp_path / "resources.yaml"

    def make(text):
        if text is not None:
            file.write_text(text.format(mount=tmp_path))
        folder = config.out / "runs" / run_name(config)
        return launch_request(config, folder, None if text is None else file)

    return make


@pytest.fixture
def written(request_of):
    """Both manifests of a run with all that can be asked for."""
    request = request_of(FULL)
    launched = kubernetes.launch(request)
    job, table = (request.folder / "kubernetes" / name for name in ("job.yaml", "table.yaml"))
    assert f"kubectl create -f {job} -f {table}" in launched.submitted
    return tuple(yaml.safe_load(one.read_text()) for one in (job, table))


def test_all_that_can_be_asked_for_is_taken_by_the_server(written):
    validate = pytest.importorskip("kubernetes_validate", reason="needs the package kubernetes-validate")
    for manifest in written:
        assert LABEL.fullmatch(last_pod(manifest))
        validate.validate(manifest, validate.latest_version(), strict=True)


names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=120)


@pytest.mark.slow
@settings(deadline=None)
@given(names, names, st.integers(1, 100_000))
def test_runs_have_names_of_their_own(one, other, completions):
    """Fit ones, also where they differ only in what a name has no room for, and after the server has cut it."""
    prefixes = [job_prefix(name, f"/data/{name}") for name in (one, other)]
    assert (prefixes[0][:GENERATED] == prefixes[1][:GENERATED]) == (one == other)
    assert all(LABEL.fullmatch(f"{prefix[:GENERATED]}x7k2p-{completions - 1}") for prefix in prefixes)


def test_a_name_can_be_read():
    prefix = job_prefix("Llama-3.2-1B-random_skip-mod-seed1-3f9a2c1b", "/data/runs/x")
    assert prefix.startswith("ab-llama-3-2-1b-random-skip-mod-seed1-")


def test_pods_get_what_was_asked_for(written):
    job, table = written
    for manifest in written:
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        env = {one["name"]: one.get("value") or one["valueFrom"] for one in container["env"]}
        assert env["HF_TOKEN"] == {"secretKeyRef": {"name": "hugging-face", "key": "token"}}
        assert env["HF_HOME"] == "/data/hub" and "OMP_NUM_THREADS" in env
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    shared = {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}
    assert shared in pod["volumes"]
    assert [one["name"] for one in container["volumeMounts"]] == ["output", "shared-memory"]
    assert pod["serviceAccountName"] == "bench" and pod["securityContext"]["runAsUser"] == 1000
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "nightly"
    (writer,) = table["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 2 and "nvidia.com/gpu" not in str(writer["resources"])


def test_what_cannot_be_had_is_refused(request_of):
    for text, said in ((None, "--resources"), ("image: i\nclaim: c\nmount: /elsewhere\n", "is not under mount")):
        with pytest.raises(UsageError, match=said):
            kubernetes.launch(request_of(text))
    with pytest.raises(UsageError, match="--shard 1/2"):
        manifests(Path("/data/runs/x"), 2100)


def test_each_index_is_a_cell_and_a_job_of_its_own_writes_the_table(written, request_of):
    def given(manifest, **environment):
        """The end of the command that a pod of it executes."""
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        shell, flag, script = container["command"]
        command, env = [shell, flag, script.replace("exec ", "echo ")], {"PATH": os.environ["PATH"], **environment}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()

    job, table = written
    spec, names = job["spec"], [one.name for one in request_of(None).pending()]
    assert (spec["completions"], spec["completionMode"], spec["podReplacementPolicy"]) == (2, "Indexed", "Failed")
    assert given(job, JOB_COMPLETION_INDEX="1")[-2:] == ["--cell", names[1]]
    assert given(table)[-3:] == ["--table-only", "--wait", "30"]
